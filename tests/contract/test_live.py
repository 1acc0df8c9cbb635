"""Text that arrives in pieces, with every model on both sides, alone and in a running batch."""

import math
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.contract.speakers import TEXTS, every_side, fed, request, speaker, unlimited
from tts_core import models
from tts_core.dia import request as dia
from tts_core.errors import CancelledError, UsageError
from tts_core.nn.noise import HostNoise
from tts_core.options import options_class
from tts_core.results import merge
from tts_core.serving.session import Failed
from tts_core.speaking.live import LiveText

pytestmark = pytest.mark.rest

FIRST, SECOND = "The inn is near the hide.", "Then it thins out again."
LETTERS = [*FIRST, *f" {SECOND}"]


SSML = 'A <prosody rate="1">text</prosody> of SSML.'  # cannot be spoken

any_model = pytest.mark.parametrize("model", models.NAMES)
every_model = pytest.mark.parametrize("model", [name for name in models.NAMES if name not in fed])


def options(model: str) -> dict[str, Any]:
    return unlimited(model, seed=1)


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
    whole = merge([first, *parts])
    assert len(read) == len(LETTERS)
    again = merge(list(speaker(model, side).stream([f"{FIRST} {SECOND}"], **options(model))))
    np.testing.assert_array_equal(whole.codes, again.codes)
    np.testing.assert_array_equal(whole.audio, again.audio)
    assert whole.cues == again.cues


@every_model
@every_side
def test_a_single_sentence_sounds_as_the_text(model: str, side: str) -> None:
    named = options(model)
    whole = merge(list(speaker(model, side).stream(FIRST, **named)))
    found = merge(list(speaker(model, side).stream(iter(FIRST), **named)))
    np.testing.assert_array_equal(found.codes, whole.codes)
    np.testing.assert_array_equal(found.audio, whole.audio)
    assert (found.cues, found.finish_reason) == (whole.cues, whole.finish_reason)


def live(model: str, text: str, side: str = "torch", **changes: Any) -> Any:
    """A text that comes, with its first sentence."""
    named = {**options(model), **changes}
    prompt = named.pop("prompt")
    asked = speaker(model, side).engine.facts.live(None, options_class(model)(**named), prompt)
    return asked.begun(text) if isinstance(asked, LiveText) else replace(asked, text=text)


def run(session: Any) -> dict[int, list[Any]]:
    """Step until nothing runs, or all that runs waits for text. Returns results and errors by key."""
    found: dict[int, list[Any]] = {}
    while not session.waiting:
        for event in session.step():
            found.setdefault(event.key, []).append(event.error if isinstance(event, Failed) else event.result)
    return found


@every_model
@every_side
def test_a_running_batch_speaks_it_too(model: str, side: str) -> None:
    """With the codes of the stream, while others are spoken."""
    whole = merge(list(speaker(model, side).stream(LETTERS, **options(model))))
    session = speaker(model, side).session(2)
    key = session.join(live(model, FIRST, side), more=True)
    session.join(session.rehearsal())
    session.feed(key, SECOND)
    session.end(key)
    found = merge(run(session)[key])
    session.close()
    np.testing.assert_array_equal(found.codes, whole.codes)
    assert len(found.audio) == len(whole.audio)
    assert found.cues == whole.cues


@any_model
def test_one_that_waits_for_text_holds_no_place_and_comes_back_first(model: str) -> None:
    """Nobody is admitted before it fits again."""
    session = speaker(model, "torch").session(1)
    text = "" if model in fed else FIRST  # one that is read while it is spoken waits inside its piece, too
    key = session.join(live(model, text), more=True)
    before = run(session)
    other = request(model, "torch", TEXTS[0], seed=1)
    assert session.running == 1
    assert session.wants(key)
    assert session.fits(other)
    taken = session.join(other)
    session.feed(key, f"{FIRST} {SECOND}" if model in fed else SECOND)
    assert not session.waiting
    assert not session.fits(other)
    session.end(key)
    found = run(session)
    assert found[taken][-1].is_final_chunk
    assert found[key][-1].is_final_chunk
    whole = merge(list(speaker(model, "torch").stream(LETTERS, **options(model))))
    np.testing.assert_array_equal(merge([*before.get(key, []), *found[key]]).codes, whole.codes)
    session.close()


@every_model
def test_a_pause_after_the_last_sentence_is_silence(model: str) -> None:
    """Texts without words do not delay the next sentence; pauses are where they are written."""
    session = speaker(model, "torch").session(2)
    key = session.join(live(model, FIRST), more=True)
    for text in ("[pause:0.25]", "...", SECOND, "[pause:0.5]"):
        session.feed(key, text)
    session.end(key)
    found = merge(run(session)[key])
    *_, first, second = (cue for cue in found.cues if cue.text.endswith("."))
    rate = found.sample_rate
    start = min(cue.start for cue in found.cues if cue.start >= first.end)
    assert start - first.end == pytest.approx(0.25, abs=1 / rate)
    assert found.audio_seconds - second.end == pytest.approx(0.5, abs=1 / rate)
    assert not found.audio[round(second.end * rate) :].any()
    session.close()


@any_model
def test_a_text_that_cannot_be_read_ends_its_request_only(model: str) -> None:
    """Where it is given, or where it is reached."""
    session = speaker(model, "torch").session(2)
    bad, good = (session.join(live(model, FIRST), more=True) for _ in range(2))
    found = {}
    try:
        session.feed(bad, SSML)
        session.end(bad)
        session.feed(good, f" {SECOND}")
        session.end(good)
        found = run(session)
        assert isinstance(found[bad][-1], UsageError)
    except UsageError:
        session.leave(bad)
        session.feed(good, f" {SECOND}")
        session.end(good)
        found = run(session)
    assert found[good][-1].is_final_chunk
    assert session.running == 0
    session.close()
    with pytest.raises(UsageError, match="no words"):
        list(speaker(model, "torch").stream(["...", " "], **options(model)))


@any_model
def test_a_limit_ends_it_while_text_comes(model: str) -> None:
    session = speaker(model, "torch").session(1)
    key = session.join(live(model, FIRST, max_seconds=0.2), more=True)
    for text in (f" {SECOND}", f" {SECOND}"):
        session.feed(key, text)
    session.end(key)
    found = run(session)[key]
    assert [part.is_final_chunk for part in found] == [False] * (len(found) - 1) + [True]
    assert found[-1].finish_reason == "length"
    if model not in fed:
        assert len(merge(found).audio) == math.ceil(0.2 * found[-1].sample_rate)
    assert session.running == 0
    session.close()


@any_model
def test_errors_of_what_gives_the_text_are_raised_as_they_are(model: str) -> None:
    """After what was heard before."""

    def broken() -> Iterator[str]:
        yield f"{FIRST} Then"
        raise OSError("the model's connection broke")

    parts = speaker(model, "torch").stream(broken(), **options(model))
    if model not in fed:
        assert next(parts).samples
    with pytest.raises(OSError, match="connection broke"):
        list(parts)
    for bad in (b"bytes", 5, None):
        with pytest.raises(UsageError, match="neither text nor an iterable"):
            speaker(model, "torch").stream(bad, **options(model))
    with pytest.raises(UsageError, match="a piece is 5, not text"):
        list(speaker(model, "torch").stream([FIRST, 5], **options(model)))


@every_model
def test_options_that_sentences_cannot_share_are_refused_at_the_call(model: str) -> None:
    named = options(model)
    with pytest.raises(UsageError, match="max_frames: not for text that arrives in pieces; give max_seconds"):
        speaker(model, "torch").stream([], **{**named, "max_frames": 5})
    with pytest.raises(UsageError, match=r"noise: .* give seed"):
        speaker(model, "torch").stream([], **{**named, "noise": HostNoise(1)})


@every_model
def test_a_cancel_is_seen_while_a_sentence_is_awaited(model: str) -> None:
    cancel = threading.Event()

    def fragments() -> Iterator[str]:
        yield "One "
        cancel.set()
        yield "two "
        pytest.fail("more text was read")

    with pytest.raises(CancelledError):
        list(speaker(model, "torch").stream(fragments(), cancel=cancel, **options(model)))


@every_side
def test_dias_voices_stay(side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second piece continues the first; a speaker who is heard later is continued, too."""
    pipeline = speaker("dia", side)
    asked, plain = [], dia.DiaFacts.request

    def request(facts: Any, text: str, given: Any, prompt: Any) -> Any:
        asked.append((text, prompt))
        return plain(facts, text, given, prompt)

    pieces = ["[S1] The inn is near the hide. ", "Then it thins. [S2] It thins out, then. ", "An end to it."]
    monkeypatch.setattr(dia.DiaFacts, "request", request)
    parts = list(pipeline.stream(pieces, seed=5, max_seconds=3.0))
    assert parts
    assert [text for text, _ in asked][:2] == [
        "[S1] The inn is near the hide.",
        "Then it thins. [S2] It thins out, then.",
    ]
    assert asked[0][1] is None
    assert asked[1][1].one.text == "[S1] The inn is near the hide."
    with pytest.raises(UsageError, match="codes without a transcript"):
        pipeline.stream(["a"], prompt=np.zeros((3, 4), np.int32))
