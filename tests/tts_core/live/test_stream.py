"""Text in pieces is spoken sentence by sentence, as one speech, before the text ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pytest

from tests.tts_core.live.speaker import RATE, WORD, Options, Speaker
from tts_core.audio.joining import FADE, PAUSE
from tts_core.errors import CancelledError, UsageError
from tts_core.live.stream import stream
from tts_core.live.voices import SameVoices
from tts_core.nn.noise import piece_seed
from tts_core.results import GenerationResult, join

FIRST, SECOND = "One two three four five.", "Six seven eight nine ten."


def spoken(fragments: Any, speaker: Speaker | None = None, **options: Any) -> Iterator[GenerationResult]:
    pipeline = cast(Any, speaker or Speaker())
    return stream(pipeline, fragments, Options(**options), SameVoices(None))


def test_the_first_sentence_is_heard_before_the_text_ends() -> None:
    """No more of the text is read than it takes to know that the sentence has ended."""
    read = []

    def text() -> Iterator[str]:
        for piece in ("One two three ", "four five.", " Six", " seven eight", " nine ten."):
            read.append(piece)
            yield piece

    parts = spoken(text(), seed=1)
    heard = [next(parts) for _ in range(5)]
    assert read[-1] == " Six"
    assert sum(part.samples for part in heard) == 5 * WORD - round(FADE * RATE)
    rest = list(parts)
    assert [part.is_final_chunk for part in rest] == [False] * 5 + [True]
    assert [part.segment_idx for part in (*heard, *rest)] == list(range(11))


def test_fragments_do_not_matter() -> None:
    text = f"{FIRST} {SECOND} [pause:0.5] And a last one of it."
    whole = join(list(spoken([text], seed=1)))
    letters = join(list(spoken(iter(text), seed=1)))
    np.testing.assert_array_equal(whole.audio, letters.audio)
    assert whole.cues == letters.cues
    assert whole.words == letters.words


def test_pieces_have_a_pause_between_seeds_of_their_own_and_times_of_the_whole() -> None:
    speaker = Speaker()
    whole = join(list(spoken([f"{FIRST} {SECOND}"], speaker, seed=7)))
    assert [one.options.seed for one in speaker.asked] == [7, piece_seed(7, 1)]
    first, pause = 5 * WORD, round(PAUSE * RATE)
    assert len(whole.audio) == 2 * first + pause
    assert not whole.audio[first : first + pause].any()
    assert whole.audio[first - 1] == pytest.approx(0, abs=0.02)
    assert [(cue.text, cue.start, cue.end) for cue in whole.cues] == [(FIRST, 0, 0.5), (SECOND, 0.7, 1.2)]
    assert [word.start for word in whole.words[4:6]] == pytest.approx([0.4, 0.7])
    assert (whole.seed, whole.token_count) == (7, 10)


def test_pauses_that_are_asked_for_have_their_length() -> None:
    text = f"[pause:0.1] {FIRST} [pause:0.3] {SECOND} [pause:0.4]"
    whole = join(list(spoken([text], seed=1)))
    assert len(whole.audio) == 10 * WORD + 800
    assert [cue.start for cue in whole.cues] == pytest.approx([0.1, 0.9])
    assert not whole.audio[-400:].any()


def test_a_cancel_is_seen_while_a_sentence_is_awaited() -> None:
    cancel = threading.Event()

    def fragments() -> Iterator[str]:
        yield "One "
        cancel.set()
        yield "two "
        pytest.fail("more text was read")

    parts = stream(cast(Any, Speaker()), fragments(), Options(), SameVoices(None), cancel=cancel)
    with pytest.raises(CancelledError):
        list(parts)


def test_max_seconds_ends_the_whole() -> None:
    speaker = Speaker()
    parts = list(spoken([f"{FIRST} {SECOND} {FIRST}"], speaker, seed=1, max_seconds=0.85))
    assert sum(part.samples for part in parts) == 850
    assert (parts[-1].finish_reason, parts[-1].is_final_chunk) == ("length", True)
    assert len(speaker.asked) == 2
    faster = list(spoken([f"{FIRST} {SECOND} {FIRST}"], seed=1, max_seconds=0.85, speed=2.0))
    assert sum(part.samples for part in faster) == 425  # as many words
    assert join(list(spoken([FIRST], seed=1, max_seconds=9))).finish_reason == "stop"
    assert join(list(spoken([FIRST, " Yes."], seed=1, most=3))).finish_reason == "length"


def test_speed_shortens_the_pause() -> None:
    whole = join(list(spoken([f"{FIRST} {SECOND}"], seed=1, speed=2.0)))
    assert len(whole.audio) == pytest.approx(5 * WORD + PAUSE * RATE / 2, abs=2)


def test_errors_of_the_pieces_are_raised() -> None:
    """Those of the iterable as they are, after what was heard before."""

    def broken() -> Iterator[str]:
        yield f"{FIRST} Then"
        raise OSError("the model's connection broke")

    parts = spoken(broken(), seed=1)
    assert [next(parts).samples for _ in range(5)]
    with pytest.raises(OSError, match="connection broke"):
        next(parts)
    for pieces in ([], [""], ["", " ", "\n"], ["..."]):
        with pytest.raises(UsageError, match="no words"):
            list(spoken(pieces))
    with pytest.raises(UsageError, match="a piece is 5, not text"):
        list(spoken([FIRST, 5]))
    for bad in (b"bytes", 5, None):
        with pytest.raises(UsageError, match="neither text nor an iterable"):
            spoken(bad)


def test_options_that_pieces_cannot_share_are_refused_at_the_call() -> None:
    with pytest.raises(UsageError, match="max_frames: not for text that arrives in pieces; give max_seconds"):
        spoken([], max_frames=5)
    with pytest.raises(UsageError, match=r"noise: .* give seed"):
        spoken([], noise=object())


def test_a_seed_is_chosen_once() -> None:
    seeds = {part.seed for part in spoken([f"{FIRST} {SECOND}"])}
    assert len(seeds) == 1
    assert isinstance(seeds.pop(), int)


def test_empty_pieces_do_nothing() -> None:
    whole = join(list(spoken(["", FIRST, "", " ", SECOND, ""], seed=1)))
    np.testing.assert_array_equal(whole.audio, join(list(spoken([f"{FIRST} {SECOND}"], seed=1))).audio)
