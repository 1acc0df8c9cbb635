"""One request beside others: text that goes on, errors, and blank transcripts, of every model."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.contract.speakers import (
    SENTENCES,
    SMALL,
    TEXTS,
    assert_same,
    every_side,
    fed,
    folder,
    given,
    replace_batch,
    request,
    running_batch,
    source,
    speaker,
)
from tests.contract.test_pieces import PROMPT_ROWS, TWO, arguments, speaking
from tests.hosts import Late
from tests.metal_errors import LATE
from tests.sides import SIDES
from tts_core.errors import UsageError
from tts_core.nn.guard import NotFiniteError
from tts_core.options import options_class
from tts_core.prompt import Prompt
from tts_core.results import merge
from tts_core.serving.session import Part
from tts_core.speaking.session import SpeechSession

ROLE_LETTERS = len("istant\n")  # that the small tokenizer leaves for the frames, of the role "assistant"
STEPS = 2000  # far more than any request here takes
LAST_HEADS = {
    "dia2": "depformer.logits.3.weight",
    "metavoice": "transformer.ln_f.weight",
    "qwen3": "talker.code_predictor.lm_head.3.weight",
}


def stepped(session: SpeechSession, keys: list[int]) -> dict[int, list[Any]]:
    """Run a session until nothing runs, or all wait for text. Returns the parts and errors of each key."""
    found: dict[int, list[Any]] = {key: [] for key in keys}
    for _ in range(STEPS):
        if session.waiting:
            return found
        for event in session.step():
            found[event.key].append(event.result if isinstance(event, Part) else event.error)
    raise AssertionError("the session does not come to an end")


@pytest.mark.parametrize("model", fed)
@every_side
def test_open_text_that_joins_whole_is_ended(model: str, side: str) -> None:
    """It is spoken as the same text in pieces."""
    how = given(model, max_frames=90, seed=3)
    prompt = how.pop("prompt")
    one, session = source(model, side).live(TEXTS[0], how, prompt), speaker(model, side).session(1)
    key = session.join(one, more=True)
    session.end(key)
    fragments = stepped(session, [key])[key]
    key = session.join(one)
    found = stepped(session, [key])[key]
    assert session.running == 0
    assert_same(merge(found), merge(fragments))


@pytest.mark.parametrize("model", fed)
def test_a_session_waits_for_text_only_without_sound_under_way(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that can be drawn is heard before more text comes, however late its sound is there."""
    from tests.contract.test_beside import SIDE, late  # needs PyTorch

    def heard() -> int:
        session = speaker(model, SIDE).session(2)
        key = session.join(request(model, SIDE, SENTENCES[:40], seed=3, max_frames=90), more=True)
        parts = stepped(session, [key])[key]
        assert session.running == 1
        session.close()
        return sum(one.codes.shape[1] for one in parts)

    expected = heard()
    late(model, monkeypatch)
    monkeypatch.setattr(Late, "ready", lambda own: False)
    assert heard() == expected > 0


def of_one_recording(model: str) -> bool:
    voice = SMALL[model].voices[-1]
    return isinstance(voice, Prompt) and len(voice.references) == 1


@pytest.mark.parametrize("model", [name for name in SMALL if of_one_recording(name)])
@pytest.mark.parametrize("blank", ["", " \n\t"])
def test_no_speech_continues_a_blank_transcript(model: str, blank: str) -> None:
    """It is refused, or the same as none where the voice alone is enough."""
    reference, pipeline = SMALL[model].voices[-1].one, speaker(model, "torch")
    none, said = (Prompt((replace(reference, text=text),)) for text in (None, blank))
    if model == "qwen3":
        expected, found = (
            pipeline.generate(TEXTS[0], **given(model, prompt=prompt, seed=5)) for prompt in (none, said)
        )
        assert_same(found, expected)
    else:
        with pytest.raises(UsageError, match="transcript: there are no words in it"):
            pipeline.generate(TEXTS[0], **given(model, prompt=said))


def damaged(model: str, side: str, target: Path, tensor: str, row: int | None = None) -> Any:
    """Load a model whose tensor is NaN; with `row` only this row of it."""
    shutil.copytree(folder(model), target)
    content = bytearray((target / "model.safetensors").read_bytes())  # of the size that is on record
    start = 8 + int.from_bytes(content[:8], "little")
    entry = json.loads(content[8:start])[tensor]
    first, end = (start + offset for offset in entry["data_offsets"])
    if row is not None:
        width = (end - first) // entry["shape"][0]
        first, end = first + row * width, first + (row + 1) * width
    content[first:end] = np.full((end - first) // 4, np.nan, np.float32).tobytes()
    (target / "model.safetensors").write_bytes(content)
    device = {"device": "cpu"} if side == "torch" else {}
    return import_module(SIDES[side]).load(target, dtype="float32", **device)


@pytest.mark.parametrize("model", LAST_HEADS)
@every_side
def test_nan_of_the_last_codebook_only_is_noticed(model: str, side: str, tmp_path: Path) -> None:
    pipeline = damaged(model, side, tmp_path / "model", LAST_HEADS[model])
    with pytest.raises(NotFiniteError):
        pipeline.generate(TEXTS[0], **given(model, seed=5))


@every_side
def test_the_row_of_nan_counts_the_frames_before(side: str, tmp_path: Path) -> None:
    """Qwen3-TTS reads a letter of its text with each frame: here the last one is NaN."""
    weights, letter = "talker.model.text_embedding.weight", ord("?")  # an id of the small tokenizer is a byte
    pipeline = damaged("qwen3", side, tmp_path / "model", weights, letter)
    for text in ("In?", "Inn it?"):
        with pytest.raises(NotFiniteError) as caught:
            pipeline.generate(text, **given("qwen3", seed=3, max_frames=60))
        assert caught.value.row == PROMPT_ROWS + ROLE_LETTERS + len(text)


class Breaking:
    """Slots that raise an error for the third text that joins: a second piece, beside a neighbor's first."""

    def __init__(self, slots: Any, error: Exception):
        self.slots, self.error, self.joined = slots, error, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.slots, name)

    def join(self, texts: dict[int, Any]) -> None:
        self.joined += len(texts)
        if self.joined >= 3:
            raise self.error
        self.slots.join(texts)


@pytest.mark.parametrize("model", [name for name in SMALL if name != "dia2"])  # which reads all at once
@every_side
def test_a_late_error_is_of_the_batch_not_of_the_request_that_finds_it(model: str, side: str) -> None:
    """Metal's errors belong to calls before: nothing that is spoken since can be trusted."""
    pipeline, options = speaking(model, side), arguments(model)
    prompt, session = options.pop("prompt"), pipeline.session(2)
    replace_batch(session, Breaking(running_batch(session), RuntimeError(LATE[0])))
    keys = [
        session.join(pipeline.request(text, options_class(model)(**options), prompt))
        for text in (TWO, TEXTS[0])
    ]
    with pytest.raises(RuntimeError, match="Insufficient Memory"):
        stepped(session, keys)
    session.close()
