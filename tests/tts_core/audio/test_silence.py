"""Silence is cut as in the definition, computed here frame by frame."""

import warnings
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts_core.audio.silence import FRAME_LENGTH, HOP_LENGTH, loud_span, sounding, trim
from tts_core.errors import UsageError

RNG = np.random.default_rng(0)


def slow_levels(samples: np.ndarray, mode: Literal["reflect", "constant"]) -> list[float]:
    padded = np.pad(samples.astype(np.float64), FRAME_LENGTH // 2, mode=mode)
    starts = range(0, len(samples) + 1, HOP_LENGTH)
    return [10 * np.log10(max(1e-10, np.mean(padded[at : at + FRAME_LENGTH] ** 2))) for at in starts]


def slow_span(samples: np.ndarray, trim_db: float, levels: list[float]) -> tuple[int, int]:
    loud = [place for place, level in enumerate(levels) if level > max(levels) - trim_db]
    return HOP_LENGTH * loud[0], min(len(samples), HOP_LENGTH * (loud[-1] + 1))


@given(
    st.integers(1025, 9000),
    st.integers(0, 9000),
    st.integers(0, 5000),
    st.floats(0.001, 1),
    st.sampled_from((10, 27.0, 60)),
    st.integers(0, 2**32 - 1),
)
def test_the_definition(
    length: int, start: int, width: int, loudness: float, trim_db: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    samples = (rng.normal(0, 1e-3, length)).astype(np.float32)
    samples[start : start + width] *= np.float32(1000 * loudness)
    for span, levels in (
        (loud_span, slow_levels(samples, "reflect")),
        (sounding, slow_levels(samples, "constant")),
    ):
        if np.abs(np.array(levels) - max(levels) + trim_db).min() > 1e-3:  # no frame is on the edge
            assert span(samples, trim_db) == slow_span(samples, trim_db, levels)


@pytest.mark.parametrize("length", [0, 1, 511, 512, 1023, 1024])
def test_too_short_to_mirror(length: int) -> None:
    samples = np.zeros(length, np.float32)
    samples[: length // 2] = 1
    assert loud_span(samples, 27) == (0, length)


def test_1024_samples_are_too_short_wherever_the_sound_is() -> None:
    """Mirrored twice, the first sample would be louder in the frame after the end than in its own."""
    samples = np.zeros(1024, np.float32)
    samples[0] = 1
    assert loud_span(samples, 1e-3) == (0, 1024)


def test_1025_samples_are_trimmed() -> None:
    """The shortest clip that can be mirrored."""
    samples = np.zeros(1025, np.float32)
    samples[0] = 1
    assert loud_span(samples, 1e-3) == slow_span(samples, 1e-3, slow_levels(samples, "reflect"))


def test_silence_is_kept() -> None:
    samples = np.zeros(5000, np.float32)
    assert loud_span(samples, 27) == (0, 5000)


def test_a_view_of_the_samples() -> None:
    samples = np.zeros(40000, np.float32)
    samples[20000:22000] = RNG.normal(0, 0.3, 2000)
    kept = trim(samples, 27)
    assert kept.base is samples
    assert len(kept) < 8000
    assert np.count_nonzero(kept) == 2000


@pytest.mark.parametrize("trim_db", [0, -3.0, float("nan")])
def test_refused(trim_db: float) -> None:
    with pytest.raises(UsageError, match=r"^trim_db: "):
        loud_span(np.ones(5000, np.float32), trim_db)


@pytest.mark.parametrize("length", [0, 1, 511, 2047, 5000])
def test_silence_and_scraps_are_kept_whole(length):
    assert sounding(np.zeros(length, np.float32), 20) == (0, length)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_has_no_level_is_kept(bad: float) -> None:
    samples = np.zeros(5000, np.float32)
    samples[1000], samples[3000] = 1, bad
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert loud_span(samples, 27) == (0, 5000)
