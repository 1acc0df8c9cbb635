import warnings

import numpy as np
import pytest

from tts_core.audio.bands import lowpass_filters
from tts_core.audio.loudness import (
    QUIETEST,
    integrated_loudness,
    normalize_loudness,
)


def tone(seconds: float, amplitude: float, rate: int = 24_000, frequency: float = 997.0) -> np.ndarray:
    return amplitude * np.sin(2 * np.pi * frequency * np.arange(round(seconds * rate)) / rate)


@pytest.mark.parametrize("rate", [16_000, 24_000, 44_100, 48_000])
@pytest.mark.parametrize("amplitude", [0.5, 0.1, 0.003])
def test_a_sine_has_the_standard_s_loudness(rate, amplitude):
    """BS.1770: 997 Hz at full scale is -3.01 LUFS; and each 20 dB less is 20 LU less."""
    found = integrated_loudness(tone(3, amplitude, rate), rate)
    assert found == pytest.approx(-3.01 + 20 * np.log10(amplitude), abs=0.1)


def test_pauses_are_gated_away():
    """The absolute gate removes silence, the relative one sound that is 30 dB below."""
    single = integrated_loudness(tone(4, 0.2), 24_000)
    for pause in (np.zeros(10 * 24_000), tone(10, 0.2 * 10**-1.5)):
        spaced = np.concatenate([tone(4, 0.2), pause])
        assert integrated_loudness(spaced, 24_000) == pytest.approx(single, abs=0.5)
    near = np.concatenate([tone(4, 0.2), tone(4, 0.2 * 10**-0.3)])
    assert integrated_loudness(near, 24_000) < single - 1  # 6 dB below counts


@pytest.mark.parametrize("silence", [0, 40])
@pytest.mark.parametrize("below", [-9, -9.8, -10.2, -11])
def test_the_relative_gate_is_10_lu_below_the_mean_of_what_is_no_silence(below, silence):
    """A fifth of the sound is `below` LU below the mean energy; it counts only down to -10."""
    ratio = 10 ** (below / 10)
    # of that fifth: `ratio` times the mean, which is 0.8 + 0.2 energy
    energy = 0.8 * ratio / (1 - 0.2 * ratio)
    loud, soft = tone(16, 0.2, 8000), tone(4, 0.2 * energy**0.5, 8000)
    expected = integrated_loudness(loud, 8000)
    if below > -10:
        expected += 10 * np.log10(0.8 + 0.2 * energy)  # -0.8
    found = integrated_loudness(np.concatenate([loud, soft, np.zeros(silence * 8000)]), 8000)
    assert found == pytest.approx(expected, abs=0.1)


@pytest.mark.parametrize(("level", "heard"), [(-69, True), (-69.8, True), (-70.2, False), (-71, False)])
def test_the_absolute_gate_is_at_minus_70(level, heard):
    found = integrated_loudness(tone(1, 10 ** ((level + 3.01) / 20)), 24_000)
    assert found == (pytest.approx(level, abs=0.1) if heard else -np.inf)


@pytest.mark.parametrize(
    ("tenths", "share"),
    [
        ("0111", 3 / 4),
        ("01111", (3 / 4 + 1) / 2),
        ("000001", 1 / 4),
        ("0111101", (3 / 4 + 1 + 3 / 4 + 3 / 4) / 4),
    ],
)
def test_a_block_of_four_tenths_starts_at_every_tenth(tenths, share):
    """Of a second; 1 is a tone, 0 silence. share: mean energy of the blocks with sound."""
    wave = np.concatenate([tone(0.1, 0.2 * int(each)) for each in tenths])
    full = integrated_loudness(tone(3, 0.2), 24_000)
    assert integrated_loudness(wave, 24_000) == pytest.approx(full + 10 * np.log10(share), abs=0.15)


def test_a_wave_is_brought_to_the_target():
    wave = tone(3, 0.01)
    found = normalize_loudness(wave, 24_000)
    assert found.dtype == np.float32
    gain = 10 ** ((-14 - integrated_loudness(wave, 24_000)) / 20)
    np.testing.assert_allclose(found, np.tanh(gain * wave), rtol=0, atol=1e-7)
    assert np.abs(normalize_loudness(tone(3, 0.9), 24_000, target=20)).max() <= 1
    softer = normalize_loudness(wave, 24_000, target=-30)
    assert integrated_loudness(softer, 24_000) == pytest.approx(-30, abs=0.02)


@pytest.mark.parametrize(
    "wave",
    [np.zeros(0), np.zeros(48_000), tone(0.399, 0.5), tone(3, QUIETEST * 1.4)],
    ids=["nothing", "silence", "less than a block", "too quiet"],
)
def test_what_has_no_loudness_is_left_alone(wave):
    found = normalize_loudness(wave, 24_000)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, wave.astype(np.float32))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_left_alone(bad):
    wave = tone(1, 0.5)
    wave[9000] = bad
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(normalize_loudness(wave, 24_000), wave.astype(np.float32))


def test_one_band_needs_no_filter():
    """More of them are golden: tests/golden/mbd_checks.py."""
    with pytest.raises(ValueError, match="1 bands"):
        lowpass_filters(1, 24_000)


def test_just_loud_enough():
    assert np.abs(normalize_loudness(tone(3, QUIETEST * 1.43), 24_000)).max() > 0.1
    assert np.abs(normalize_loudness(tone(0.4, 0.01), 24_000)).max() > 0.1
