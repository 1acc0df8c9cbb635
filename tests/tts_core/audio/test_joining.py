"""Joined pieces: no clicks, nothing lost, and the same samples for any chunks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tts_core.audio.splicing import Splicer, splice
from tts_core.errors import UsageError

RATE = 24000


def voiced(seconds: float, seed: int, *, offset: float = 0.0) -> np.ndarray:
    """Harmonics of a gliding pitch with noise: cut anywhere, it ends at full loudness."""
    rng = np.random.default_rng(seed)
    t = np.arange(int(seconds * RATE)) / RATE
    phase = 2 * np.pi * np.cumsum(120 + 40 * np.sin(2 * np.pi * 1.3 * t + rng.uniform(0, 6))) / RATE
    wave = sum(np.sin(k * phase + rng.uniform(0, 6)) / k for k in range(1, 20))
    return (0.2 * wave + rng.normal(0, 0.005, len(t)) + offset).astype(np.float32)


def steps(samples: np.ndarray) -> np.ndarray:
    return np.abs(np.diff(samples))


@pytest.mark.parametrize("pause", [0.0, 0.02, 0.2])
@pytest.mark.parametrize("seed", range(4))
def test_no_click(pause: float, seed: int) -> None:
    """The largest step at a join is at most the 99.9th percentile of the steps inside pieces."""
    pieces = [voiced(seconds, seed + i, offset=0.1) for i, seconds in enumerate((0.7, 0.4, 0.9))]
    allowed = np.percentile(np.concatenate([steps(piece) for piece in pieces]), 99.9)
    joined = splice(pieces, RATE, pause_seconds=pause)
    place = 0
    for piece in pieces[:-1]:
        place += len(piece)
        around = joined[place - 1 : place + round(pause * RATE) + 1]
        assert steps(around).max() <= allowed / 10
        fade = round(0.02 * RATE)
        faded, plain = joined[place - fade : place], piece[-fade:]
        assert (steps(faded) <= steps(plain) + np.abs(plain[1:]) * np.pi / 2 / fade + 1e-6).all()
        place += round(pause * RATE)
    butted = np.concatenate(pieces)
    seams = np.cumsum([len(piece) for piece in pieces])[:-1]
    assert max(abs(float(butted[at] - butted[at - 1])) for at in seams) > 2 * allowed, (
        "the test sees no click"
    )


def test_lengths_and_what_stays() -> None:
    pieces = [voiced(0.3, 1), voiced(0.2, 2), voiced(0.25, 3)]
    joined = splice(pieces, RATE, pause_seconds=0.1, fade_seconds=0.01)
    assert len(joined) == sum(map(len, pieces)) + 2 * 2400
    assert joined.dtype == np.float32
    np.testing.assert_array_equal(joined[: len(pieces[0]) - 240], pieces[0][:-240])
    np.testing.assert_array_equal(joined[-len(pieces[2]) + 240 :], pieces[2][240:])
    start = len(pieces[0]) + 2400
    np.testing.assert_array_equal(joined[start - 2400 : start], np.zeros(2400))
    np.testing.assert_array_equal(joined[start + 240 : start + 4800 - 240], pieces[1][240:-240])


@pytest.mark.parametrize("length", [0, 1, 239, 240, 241, 5000])
def test_one_piece_is_unchanged(length: int) -> None:
    piece = voiced(0.3, 4)[:length]
    np.testing.assert_array_equal(splice([piece], RATE), piece)


@pytest.mark.parametrize("length", [1, 5, 19, 20, 21])
def test_a_piece_that_is_shorter_than_a_fade_ends_in_silence_too(length: int) -> None:
    sound = splice([np.ones(length), np.ones(40)], 1000, pause_seconds=0.1, fade_seconds=0.02)
    assert sound[length - 1] < 0.01
    assert (np.diff(sound[:length]) <= 0).all()


def test_no_pieces() -> None:
    assert len(splice([], RATE)) == 0


@settings(max_examples=50)
@given(
    st.lists(st.lists(st.integers(0, 900), min_size=1, max_size=4), min_size=1, max_size=4),
    st.sampled_from((0.0, 0.01, 0.02)),
    st.sampled_from((0.0, 0.005)),
)
def test_chunks_give_what_whole_pieces_give(lengths: list[list[int]], fade: float, pause: float) -> None:
    """Also for pieces shorter than the fades; output never depends on later input."""
    sound = voiced(0.7, 5)
    pieces = [[sound[sum(cuts[:i]) :][:cut] for i, cut in enumerate(cuts)] for cuts in lengths]
    whole = splice(
        [np.concatenate(chunks) for chunks in pieces], RATE, fade_seconds=fade, pause_seconds=pause
    )
    joiner, out = Splicer(RATE, fade_seconds=fade, pause_seconds=pause), []
    for place, chunks in enumerate(pieces):
        for i, chunk in enumerate(chunks):
            last = i == len(chunks) - 1 and place < len(pieces) - 1
            out.append(joiner.add(chunk, last_of_piece=last))
            made = np.concatenate(out)
            np.testing.assert_array_equal(made, whole[: len(made)])
    np.testing.assert_array_equal(np.concatenate([*out, joiner.finish()]), whole)


def test_samples_given_are_not_changed() -> None:
    pieces = [voiced(0.1, 6), voiced(0.1, 7)]
    copies = [piece.copy() for piece in pieces]
    splice(pieces, RATE)
    for piece, copy in zip(pieces, copies, strict=True):
        np.testing.assert_array_equal(piece, copy)


@pytest.mark.parametrize("wrong", [{"pause_seconds": -0.1}, {"fade_seconds": -1.0}])
def test_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=r"^join: "):
        splice([], RATE, **wrong)
