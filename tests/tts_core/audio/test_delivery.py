"""Pieces as one sound: their speed, their pauses sample by sample, and the times of their captions."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tts_core.audio.delivery import Delivery, Pacing
from tts_core.text.captions import Cue, Word

RATE = 8000


def wave(seconds: float, seed: int) -> np.ndarray:
    """(L,) nonzero samples."""
    sound = np.random.default_rng(seed).uniform(0.1, 0.5, round(seconds * RATE))
    return sound.astype(np.float32)


WAVES = [wave(0.3, 1), wave(0.2, 2), wave(0.25, 3)]
TEXTS = ("One.", "Two.", "Three.")


def whole(pacing: Pacing, waves: list[np.ndarray] = WAVES) -> tuple[np.ndarray, tuple[Cue, ...]]:
    delivery = Delivery(pacing, RATE)
    return delivery.whole(waves), delivery.cues()


@settings(max_examples=40)
@given(
    st.lists(st.lists(st.integers(0, 900), min_size=1, max_size=4), min_size=1, max_size=4),
    st.lists(st.sampled_from((None, 0.01, 0.2)), min_size=5, max_size=5),
    st.sampled_from((1.0, 0.5, 1.4)),
)
def test_chunks_give_what_whole_pieces_give(
    lengths: list[list[int]], silences: list[float | None], speed: float
) -> None:
    """Equal samples and captions; output never depends on later input."""
    sound = wave(1, 5)
    pieces = [[sound[sum(cuts[:i]) :][:cut] for i, cut in enumerate(cuts)] for cuts in lengths]
    pacing = Pacing(TEXTS[:1] * len(pieces), tuple(silences[: len(pieces) + 1]), speed)
    expected, captions = whole(pacing, [np.concatenate(chunks) for chunks in pieces])
    delivery, out, cues = Delivery(pacing, RATE), [], []
    for place, chunks in enumerate(pieces):
        for i, chunk in enumerate(chunks):
            last = i == len(chunks) - 1 and place < len(pieces) - 1
            out.append(delivery.add(chunk, last_of_piece=last))
            cues += delivery.cues()
            made = np.concatenate(out)
            np.testing.assert_array_equal(made, expected[: len(made)])
    np.testing.assert_array_equal(np.concatenate([*out, delivery.finish()]), expected)
    assert tuple([*cues, *delivery.cues()]) == captions


def test_a_text_that_stops_early_has_no_silence_after() -> None:
    """A limit of frames ended it after the second of three pieces."""
    made, cues = whole(Pacing(TEXTS, (None, 0.5, 0.5, 2.0)), WAVES[:2])
    assert len(made) == len(WAVES[0]) + 0.5 * RATE + len(WAVES[1])
    assert [cue.text for cue in cues] == ["One.", "Two."]


def test_a_piece_without_sound_has_no_caption() -> None:
    made, cues = whole(Pacing(TEXTS, (None, 0.5, 0.5, None)), [WAVES[0], WAVES[1][:0], WAVES[2]])
    assert len(made) == len(WAVES[0]) + RATE + len(WAVES[2])
    assert [(cue.text, cue.start) for cue in cues] == [("One.", 0), ("Three.", 1.3)]


def test_text_that_comes_later_sounds_as_if_it_had_been_there() -> None:
    """Pauses at the seam add up; words are timed in the whole sound, once."""
    pacing = Pacing(TEXTS, (0.1, None, 0.7, 0.2), 1.25)
    expected, cues = whole(pacing)
    fed = Delivery(Pacing(TEXTS[:2], (0.1, None, 0.5), 1.25), RATE, more=True)
    parts = [fed.add(WAVES[0], last_of_piece=True)]
    fed.extend(Pacing(TEXTS[2:], (0.2, 0.2), 1.25))
    parts.append(fed.add(WAVES[1], last_of_piece=True))
    fed.time([Word("Three.", 0.125, 0.25)])
    parts += [fed.add(WAVES[2]), fed.finish()]
    np.testing.assert_array_equal(np.concatenate(parts), expected)
    found = fed.cues()
    assert [(cue.text, cue.start, cue.end) for cue in found] == [
        (cue.text, cue.start, cue.end) for cue in cues
    ]
    assert fed.words() == found[2].words == (Word("Three.", found[2].start + 0.1, found[2].start + 0.2),)
    assert fed.words() == ()
