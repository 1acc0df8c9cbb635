"""Text that arrives in pieces, with every model on both sides, alone and in a running batch."""

import json
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from tests.contract.speakers import every_side, fed, speaker, unlimited
from tts_core import models
from tts_core.errors import UsageError
from tts_core.live.chain import Chain
from tts_core.options import options_class
from tts_core.results import join
from tts_core.serving.live_session import LiveRequest, LiveSession
from tts_core.serving.session import Part
from tts_core.text.rules import FILE, NO_RULES

pytestmark = pytest.mark.rest

FIRST, SECOND = "The inn is near the hide.", "Then it thins out again."
LETTERS = [*FIRST, *f" {SECOND}"]


every_model = pytest.mark.parametrize("model", [name for name in models.NAMES if name not in fed])


def options(model: str) -> dict[str, Any]:
    return unlimited(model, seed=3)


@every_model
@every_side
def test_the_first_sentence_is_heard_before_the_text_ends(model: str, side: str) -> None:
    read = []

    def text() -> Iterator[str]:
        for letter in LETTERS:
            read.append(letter)
            yield letter

    parts = speaker(model, side).stream(text(), **options(model))
    first = next(parts)
    assert first.samples
    assert len(read) == len(FIRST) + 2
    whole = join([first, *parts])
    assert len(read) == len(LETTERS)
    again = join(list(speaker(model, side).stream([f"{FIRST} {SECOND}"], **options(model))))
    np.testing.assert_array_equal(whole.codes, again.codes)
    np.testing.assert_array_equal(whole.audio, again.audio)
    assert whole.cues == again.cues


@every_model
@every_side
def test_a_single_sentence_sounds_as_the_text(model: str, side: str) -> None:
    named = options(model)
    whole = join(list(speaker(model, side).stream(FIRST, **named)))
    found = join(list(speaker(model, side).stream(iter(FIRST), **named)))
    np.testing.assert_array_equal(found.codes, whole.codes)
    np.testing.assert_array_equal(found.audio, whole.audio)
    assert (found.cues, found.finish_reason) == (whole.cues, whole.finish_reason)


@every_model
@every_side
def test_a_running_batch_speaks_it_too(model: str, side: str) -> None:
    """With the codes of the stream, while others are spoken."""
    pipeline, named = speaker(model, side), options(model)
    prompt = named.pop("prompt")
    whole = join(list(pipeline.stream(LETTERS, prompt=prompt, **named)))
    session = LiveSession(pipeline.session(2))
    chosen = options_class(model)(**named)
    documents = {"dia": {FILE: json.dumps(getattr(pipeline, "rules", NO_RULES).to_dict())}}
    voices = import_module(f"tts_core.{model}.request").voices(documents, prompt)
    chain = Chain(pipeline.request, chosen, voices)
    key = session.join(LiveRequest(chain, chain.next(FIRST)), more=True)
    session.join(session.rehearsal())
    session.feed(key, SECOND)
    session.end(key)
    parts = []
    while session.running:
        for event in session.step():
            assert isinstance(event, Part), event
            parts += [event.result] if event.key == key else []
    session.close()
    found = join(parts)
    np.testing.assert_array_equal(found.codes, whole.codes)
    assert len(found.audio) == len(whole.audio)
    assert found.cues == whole.cues


@every_side
def test_dias_voices_stay(side: str) -> None:
    """The second piece continues the first; a speaker who is heard later is continued, too."""
    pipeline = speaker("dia", side)
    asked, plain = [], pipeline.request

    def request(text: str, given: Any, prompt: Any = None) -> Any:
        asked.append((text, prompt))
        return plain(text, given, prompt)

    pieces = ["[S1] The inn is near the hide. ", "Then it thins. [S2] It thins out, then. ", "An end to it."]
    pipeline.request = request
    try:
        parts = list(pipeline.stream(pieces, seed=5, max_seconds=3.0))
    finally:
        del pipeline.request
    assert parts
    assert [text for text, _ in asked][:2] == [
        "[S1] The inn is near the hide.",
        "Then it thins. [S2] It thins out, then.",
    ]
    assert asked[0][1] is None
    assert asked[1][1].one.text == "[S1] The inn is near the hide."
    with pytest.raises(UsageError, match="codes without a transcript"):
        pipeline.stream(["a"], prompt=np.zeros((3, 4), np.int32))
