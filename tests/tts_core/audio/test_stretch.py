"""Speech at another speed: length, pitch, level, spectra beside a library's; the same samples in chunks."""

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.golden.cases import DEFAULT
from tts_core.audio.files import read_audio_at_its_rate
from tts_core.audio.stretch import Stretcher, stretch
from tts_core.errors import UsageError

SPEEDS = (0.5, 0.7, 0.9, 1.1, 1.3, 1.7, 2.0)
RATE = 24_000


@cache
def speech() -> np.ndarray:
    """2.2 s of a voice, (L,)."""
    samples, rate = read_audio_at_its_rate(DEFAULT / "metavoice" / "speaker_ref_24k.wav")
    assert rate == RATE
    return samples


def pitch(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Hz by autocorrelation in frames of 40 ms every 10 ms, and how periodic each is, up to 1."""
    width, window = RATE // 25, np.hanning(RATE // 25)
    frames = np.lib.stride_tricks.sliding_window_view(samples, width)[:: RATE // 100]
    own = np.fft.irfft(np.abs(np.fft.rfft(window, 2 * width)) ** 2)
    found = np.fft.irfft(np.abs(np.fft.rfft(frames * window, 2 * width)) ** 2)
    periodic = found / (found[:, :1] + 1e-6) / (own / own[0] + 1e-6)
    low, high = RATE // 400, RATE // 60
    best = low + np.argmax(periodic[:, low:high], axis=1)
    row = np.arange(len(best))
    before, peak, after = (periodic[row, best + step] for step in (-1, 0, 1))
    return RATE / (best + (before - after) / 2 / (before - 2 * peak + after)), peak


def cents(changed: np.ndarray, speed: float) -> np.ndarray:
    """Distance of the pitch of each voiced frame from the original's, in 1/100 of a semitone."""
    (was, sure), (now, found) = pitch(speech()), pitch(changed)
    place = np.minimum(np.rint(np.arange(len(now)) * speed).astype(int), len(was) - 1)
    voiced = (sure[place] > 0.8) & (found > 0.6)
    assert voiced.sum() > 0.6 * (sure > 0.8).sum() / speed
    return 1200 * np.log2(now[voiced] / was[place[voiced]])


def level_db(samples: np.ndarray) -> float:
    return 10 * np.log10(np.mean(samples.astype(np.float64) ** 2))


def spectra(samples: np.ndarray) -> np.ndarray:
    """Levels in dB, floored, every 128 samples, up to 6 kHz."""
    frames = np.lib.stride_tricks.sliding_window_view(np.pad(samples, 512), 1024)[::128]
    return 20 * np.log10(np.abs(np.fft.rfft(frames * np.hanning(1024)))[:, :256] + 1e-3)


def distance(changed: np.ndarray, speed: float) -> float:
    """Mean difference in dB from the spectra of the same moments of the original."""
    was, now = spectra(speech()), spectra(changed)
    place = np.minimum(np.rint(np.arange(len(now)) * speed).astype(int), len(was) - 1)
    return float(np.abs(now - was[place]).mean())


@pytest.mark.parametrize("speed", SPEEDS)
def test_pitch_level_and_length_are_kept(speed: float) -> None:
    changed = stretch(speech(), RATE, speed)
    assert changed.dtype == np.float32
    assert len(changed) == round(len(speech()) / speed)
    off = cents(changed, speed)
    assert abs(np.median(off)) < 5
    assert np.percentile(np.abs(off), 80) < 30
    assert abs(level_db(changed) - level_db(speech())) < 0.2


@pytest.mark.parametrize("speed", SPEEDS)
def test_it_is_no_worse_than_a_library(speed: float) -> None:
    """Rubber Band, as pedalboard carries it: pitch, level, and spectra beside those of the original."""
    library: Callable[..., np.ndarray] = pytest.importorskip(
        "pedalboard", reason="Rubber Band, in pedalboard, is the oracle"
    ).time_stretch
    ours, theirs = stretch(speech(), RATE, speed), library(speech()[None], RATE, speed)[0]
    assert len(ours) == len(theirs)
    for quantile in (50, 80):
        our, their = (np.percentile(np.abs(cents(one, speed)), quantile) for one in (ours, theirs))
        assert our < their + 10
    assert distance(ours, speed) < 1.1 * distance(theirs, speed)
    resampled = np.interp(np.arange(0, len(speech()) - 1, speed), np.arange(len(speech())), speech())
    assert distance(resampled.astype(np.float32), speed) > 1.3 * distance(ours, speed), (
        "the test hears no pitch"
    )


@pytest.mark.parametrize("rate", [8_000, 16_000, 24_000, 44_100])
@pytest.mark.parametrize("speed", [0.5, 0.83, 1.21, 2.0])
def test_a_steady_tone_stays_one(rate: int, speed: float) -> None:
    """In phase throughout: no beats, and the same frequency to 0.2 %."""
    tone = np.sin(2 * np.pi * 220 * np.arange(rate) / rate).astype(np.float32)
    changed = stretch(tone, rate, speed)[rate // 20 : -rate // 20]
    crossings = np.flatnonzero((changed[:-1] < 0) & (changed[1:] >= 0))
    exact = crossings - changed[crossings] / (changed[crossings + 1] - changed[crossings])
    periods = len(exact) - 1
    assert periods > 70
    assert (exact[-1] - exact[0]) / periods == pytest.approx(rate / 220, rel=2e-3)
    swell = np.sqrt(np.convolve(changed**2, np.ones(rate // 20) / (rate // 20), "valid"))
    assert 0.99 < swell.min() / np.sqrt(0.5) < swell.max() / np.sqrt(0.5) < 1.01


@pytest.mark.parametrize("length", [0, 1, 2, 3, 100, 359, 360, 361, 1009, 4999])
@pytest.mark.parametrize("speed", [0.5, 0.77, 1.0, 1.5, 2.0])
def test_any_length(length: int, speed: float) -> None:
    changed = stretch(speech()[20_000 : 20_000 + length], RATE, speed)
    assert len(changed) == round(length / speed)
    assert np.isfinite(changed).all()
    assert np.abs(changed).max(initial=0) <= 1.01 * np.abs(speech()).max()


def test_speed_one_copies() -> None:
    np.testing.assert_array_equal(stretch(speech(), RATE, 1), speech())


@pytest.mark.parametrize("place", [7_000, 12_345, 16_000])
def test_sound_after_silence_keeps_its_time(place: int) -> None:
    """Candidates in silence are equal: the nearest wins. The first one would delay the sound by 10 ms."""
    sound = np.zeros(RATE, np.float32)
    sound[place] = 1
    heard = np.flatnonzero(stretch(sound, RATE, 1.1))
    assert abs(heard - place / 1.1).max() < 0.005 * RATE


def test_silence_stays_silent() -> None:
    assert not stretch(np.zeros(RATE, np.float32), RATE, 1.4).any()


@settings(max_examples=40)
@given(st.lists(st.integers(0, 4000), min_size=1, max_size=8), st.sampled_from(SPEEDS))
def test_chunks_give_what_the_whole_gives(lengths: list[int], speed: float) -> None:
    """Equal bit for bit; output never depends on later input."""
    sound = speech()[10_000 : 10_000 + sum(lengths)]
    lengths[-1] -= sum(lengths) - len(sound)
    whole, stretcher, made = stretch(sound, RATE, speed), Stretcher(RATE, speed), []
    start = 0
    for length in lengths:
        made.append(stretcher.add(sound[start : start + length].copy()))
        start += length
        so_far = np.concatenate(made)
        np.testing.assert_array_equal(so_far, whole[: len(so_far)])
    np.testing.assert_array_equal(np.concatenate([*made, stretcher.finish()]), whole)


def test_it_waits_no_longer_than_it_must() -> None:
    """After one second of input, all output except the last two segments is available."""
    for speed in SPEEDS:
        made = Stretcher(RATE, speed).add(speech()[:RATE])
        assert len(made) > (RATE - 0.07 * RATE) / speed


@pytest.mark.parametrize("speed", [0.0, 0.49, 2.01, -1.0, float("nan"), float("inf")])
def test_refused(speed: float) -> None:
    with pytest.raises(UsageError, match=r"^speed: .* is outside \[0\.5, 2\]"):
        Stretcher(RATE, speed)
