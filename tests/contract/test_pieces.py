"""Speech of several pieces: its limit, its rows, and why it ended, of every model on both sides."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from tests.contract.speakers import (
    SENTENCES,
    SMALL,
    converted,
    every_model,
    every_side,
    speaker,
    to_end,
    unlimited,
)
from tests.sides import SIDES
from tests.tiny.qwen3 import write_published
from tts_core.options import options_class
from tts_core.results import GenerationResult, merge
from tts_core.serving.session import Failed
from tts_core.speaking.running import Running

TWO = "The inn is near. [pause:0.1] Then it thins out."
FIRST, SECOND = "The inn is near.", "Then it thins out."
PROMPT_ROWS = 9  # of Qwen3-TTS before a piece's first frame: role 3, language 4, speaker 1, start 1


@cache
def speaking(model: str, side: str) -> Any:
    """A loaded pipeline whose pieces end by themselves if the model's do."""
    if model != "qwen3":
        return speaker(model, side)
    device = {"device": "cpu"} if side == "torch" else {}
    return import_module(SIDES[side]).load(brief(), dtype="float32", **device)


@cache
def brief() -> Any:
    """A folder of Qwen3-TTS that ends its pieces after some frames."""
    return converted(lambda folder: write_published(folder, "base", eos=1.5))


def arguments(model: str, **changes: Any) -> dict[str, Any]:
    """Without a limit."""
    return unlimited(model, seed=3, **({"piece_seconds": 20.0} if model == "qwen3" else {}), **changes)


@cache
def spoken(model: str, side: str) -> GenerationResult:
    return speaking(model, side).generate(TWO, **arguments(model))


@every_model
@every_side
@pytest.mark.parametrize("left", [1, 5])
def test_a_limit_is_of_all_pieces_together(model: str, side: str, left: int) -> None:
    """It cuts the last piece, which counts the frames of those before."""
    limit = spoken(model, side).codes.shape[1] - left
    found = speaking(model, side).generate(TWO, **arguments(model, max_frames=limit))
    assert 0 < found.codes.shape[1] <= limit
    assert found.finish_reason == "length"
    assert len(found.cues) == len(spoken(model, side).cues)


@every_side
def test_rows_of_qwen3_are_its_prompts_and_frames(side: str) -> None:
    """Of each piece; a transcript adds rows."""
    one, both = speaking("qwen3", side).generate(FIRST, **arguments("qwen3")), spoken("qwen3", side)
    assert one.token_count == PROMPT_ROWS + one.codes.shape[1]
    assert both.token_count == 2 * PROMPT_ROWS + both.codes.shape[1]
    said = arguments("qwen3", prompt=SMALL["qwen3"].voices[1])
    continued = speaking("qwen3", side).generate(FIRST, **said)
    assert continued.token_count > one.token_count + continued.codes.shape[1]


@pytest.mark.parametrize("model", ["mars5", "metavoice"])  # their random networks never end a piece
@every_side
def test_a_speech_with_cut_pieces_ends_by_its_length(model: str, side: str) -> None:
    """All of its text is spoken, without the caller's limit."""
    found = spoken(model, side)
    assert " ".join(cue.text for cue in found.cues) == f"{FIRST} {SECOND}"
    assert found.finish_reason == "length"


@every_side
def test_a_cut_piece_of_qwen3_is_remembered(side: str) -> None:
    """The network that hardly ends a piece; the one that ends its pieces stops."""
    assert spoken("qwen3", side).finish_reason == "stop"
    cut = speaker("qwen3", side).generate("In. [pause:0.1] It.", **arguments("qwen3"))
    assert [cue.text for cue in cut.cues] == ["In.", "It."]
    assert cut.finish_reason == "length"


@pytest.mark.parametrize("model", ["dia", "mars5", "metavoice"])  # whose pieces wait for anchors only
@every_side
def test_pieces_run_at_once_where_nobody_hears_them_and_are_heard_in_order(
    model: str, side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in a stream, nor in a session that requests share; with the same codes and captions."""
    pipeline, taken, turn = speaking(model, side), list[int](), Running.advance
    monkeypatch.setattr(Running, "advance", lambda slots: [taken.append(len(slots.taken)), turn(slots)][1])
    named = unlimited(model, seed=3)
    whole = pipeline.generate(SENTENCES, **named)
    assert max(taken) > 1
    taken.clear()
    parts = list(pipeline.stream(SENTENCES, **named))
    assert max(taken) == 1
    np.testing.assert_array_equal(merge(parts).codes, whole.codes)
    assert merge(parts).cues == whole.cues
    assert [cue.start for cue in whole.cues] == sorted(cue.start for cue in whole.cues)
    taken.clear()
    pipeline.generate(SENTENCES, **{**named, "max_frames": 40})
    assert max(taken) == 1
    stages = whole.stage_seconds.values()
    assert sum(stages) <= whole.processing_time_seconds


@pytest.mark.parametrize("model", ["dia", "mars5", "metavoice"])
def test_a_piece_that_fails_ends_its_request_only(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside another text of the batch, whose pieces go on."""
    pipeline = speaking(model, "torch")
    asked = [pipeline.request(SENTENCES, *given_to(model, seed)) for seed in (3, 4)]
    job, places = pipeline.engine.together(asked)
    session = pipeline.opened(places, job, streamed=False, at_once=2)
    keys = [session.join(one) for one in asked]
    session.step()
    slot = next(slot for slot in session.slots.taken if slot.owner.member.key == keys[0])
    throw = ValueError("a bug")
    monkeypatch.setattr(slot.owner, "speech", broken(throw))
    found: dict[int, Any] = {}
    for event in to_end(session):
        found[event.key] = event
    assert isinstance(found[keys[0]], Failed)
    assert found[keys[0]].error is throw
    assert found[keys[1]].result.is_final_chunk
    session.close()


def broken(error: Exception) -> Any:
    """A speech that fails when it goes on."""

    def speech() -> Any:
        yield
        raise error

    made = speech()
    next(made)
    return made


def given_to(model: str, seed: int) -> tuple[Any, Any]:
    """Options and prompt of a request."""
    named = unlimited(model, seed=seed)
    prompt = named.pop("prompt")
    return options_class(model)(**named), prompt
