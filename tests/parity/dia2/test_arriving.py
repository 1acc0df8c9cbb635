"""Text that comes while it is spoken, over several contexts: alone, in a running batch, and served."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tests.contract.speakers import to_end
from tests.sides import SIDES
from tests.tiny.dia2 import recording
from tts_core.audio.splicing import PAUSE
from tts_core.dia2.options import Dia2Options
from tts_core.errors import CancelledError
from tts_core.results import GenerationResult, merge

pytestmark = pytest.mark.rest

TEXT = " ".join(
    f"[S{1 + n % 2}] This is turn {n}, it has some words. And [pause:0.2] more." for n in range(4)
)
WORDS = [f"{word} " for word in TEXT.split()]

every_side = pytest.mark.parametrize("side", SIDES)


@pytest.fixture(scope="module")
def pipeline(both: Any) -> Any:
    return lambda side: both("v_main")[list(SIDES).index(side)]


@pytest.fixture(scope="module")
def spoken(pipeline: Any) -> Any:
    """The text, word by word."""
    return cache(lambda side: merge(list(pipeline(side).stream(iter(WORDS), seed=3))))


def said(text: str) -> list[str]:
    return [word for word in text.split() if not word.startswith("[")]


def test_both_sides_say_the_same(spoken: Any, same: Any) -> None:
    same(spoken("torch"), spoken("mlx"))


def test_the_whole_text_is_spoken_once(spoken: Any, pipeline: Any) -> None:
    """Words in order with times that rise, captions that follow each other, and every frame's samples."""
    result, config = spoken("mlx"), pipeline("mlx").config
    assert result.codes.shape[1] > 1.9 * config.max_context_steps
    assert [word.text for word in result.words] == said(TEXT)
    starts = [word.start for word in result.words]
    assert starts == sorted({*starts})
    cues = result.cues
    assert len(cues) > 2
    assert [word for cue in cues for word in cue.words] == [*result.words]
    assert [word for cue in cues for word in said(cue.text)] == said(TEXT)
    assert all(cue.text.startswith("[S") for cue in cues)
    pieces = {cue.piece for cue in cues}
    for before, after in pairwise(cues):
        apart = PAUSE if after.piece > before.piece else 0.0
        assert after.start - before.end == pytest.approx(apart)
        assert all(before.start <= word.start < before.end for word in before.words)
    pauses = (len(pieces) - 1) * round(PAUSE * result.sample_rate)
    assert len(result.audio) == result.codes.shape[1] * pipeline("mlx").codec_config.hop_length + pauses
    assert result.finish_reason == "stop"


def test_recordings_are_the_voice_of_every_piece(pipeline: Any, same: Any) -> None:
    """The prefix of each piece is read when the words that it looks ahead to have come."""
    one, other = (
        merge(list(pipeline(side).stream(pieces, prompt=recording(), seed=4)))
        for side, pieces in (("torch", ["".join(WORDS[:30])]), ("mlx", iter(WORDS[:30])))
    )
    same(one, other)
    assert len(one.cues) > 1
    short = "[S1] Hello there friend. [pause:0.3] Yes."
    whole = pipeline("mlx").generate(short, prompt=recording(), seed=4)
    same(merge(list(pipeline("mlx").stream(iter(short), prompt=recording(), seed=4))), whole)


def test_a_limit_is_over_all_pieces(spoken: Any, pipeline: Any) -> None:
    """Inside the second piece, and where the first one ends."""
    whole = spoken("mlx")
    first = round(whole.cues[0].end * pipeline("mlx").codec_config.frame_rate)
    for frames in (first + 9, first):
        result = merge(list(pipeline("mlx").stream(iter(WORDS), seed=3, max_frames=frames)))
        np.testing.assert_array_equal(result.codes, whole.codes[:, :frames])
        assert result.finish_reason == "length"
    longer = pipeline("mlx").stream(iter(["Yes."]), seed=3, max_seconds=600)
    assert merge(list(longer)).finish_reason == "stop"


def test_a_recording_that_is_kept_does_not_count(pipeline: Any) -> None:
    """Over several pieces, of which the first begins with it."""
    port = pipeline("torch")
    given: dict[str, Any] = {"prompt": recording(), "seed": 4, "include_prefix": True}
    whole = merge(list(port.stream(iter(WORDS[:30]), **given)))
    kept = sum(one.frames for one in port.request("Yes.", Dia2Options(), recording()).recordings) - 1
    stop = round(whole.cues[0].end * port.codec_config.frame_rate) + 9
    result = merge(list(port.stream(iter(WORDS[:30]), max_frames=stop - kept, **given)))
    np.testing.assert_array_equal(result.codes, whole.codes[:, :stop])
    assert result.finish_reason == "length"


def until_a_piece_ends(session: Any, key: int) -> Iterator[GenerationResult]:
    """Feed words to a session, one when it waits, until a piece of the text is spoken; yield parts."""
    words = iter(WORDS)
    while True:
        while session.waiting:
            session.feed(key, next(words))
        for event in session.step():
            yield event.result
            if event.key == key and event.result.cues:
                return


@every_side
def test_a_request_leaves_between_two_pieces(pipeline: Any, side: str) -> None:
    """It has no slot then, and its neighbor's is not touched."""
    session = pipeline(side).session(2)
    key = session.join(pipeline(side).request(WORDS[0] + WORDS[1], Dia2Options(seed=3)), more=True)
    parts = list(until_a_piece_ends(session, key))
    assert parts[-1].finish_reason is None
    assert (session.running, session.waiting) == (1, True), "the next piece's first words have not come"
    other = session.join(pipeline(side).request("[S2] Yes.", Dia2Options(seed=1)))
    heard = [*session.step()]
    session.leave(key)
    assert session.running == 1
    heard += to_end(session)
    assert {event.key for event in heard} == {other}
    alone = pipeline(side).generate("[S2] Yes.", seed=1)
    np.testing.assert_array_equal(merge([event.result for event in heard]).codes, alone.codes)


def test_a_stream_is_cancelled_between_two_pieces(pipeline: Any) -> None:
    cancel = threading.Event()
    parts = pipeline("torch").stream(iter(WORDS), seed=3, cancel=cancel)
    while not (part := next(parts)).cues:
        pass
    assert part.finish_reason is None
    cancel.set()
    with pytest.raises(CancelledError):
        next(parts)


def test_the_memory_of_a_voice_is_counted_from_the_start(pipeline: Any) -> None:
    """Later pieces continue the first one; nobody knows yet if there are any."""
    [side, options] = pipeline("mlx"), Dia2Options(seed=3)
    whole = side.request("[S1] Yes.", options)
    assert whole.job().prefix_frames == 0
    assert whole.opened().job() == side.request(TEXT, options).job()
    assert whole.opened().job().prefix_frames == whole.voice_frames > 0
