import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts_core.audio.files import read_audio, resample
from tts_core.audio.mel import mel_filters, mel_power, slaney_frequencies, slaney_mels
from tts_core.audio.silence import sounding, trim
from tts_core.metavoice.speaker_slices import (
    SAMPLE_RATE,
    padded_length,
    read_speaker,
    slice_starts,
    utterance_mel,
    utterance_slices,
)

soundfile = pytest.importorskip("soundfile")


@given(st.integers(0, 2_000_000))
def test_slices_cover_the_recording(samples):
    """In steps of 77, all within what is padded, no more than three quarters of one lost."""
    starts = slice_starts(samples)
    assert starts == list(range(0, 77 * len(starts), 77))
    end = (starts[-1] + 160) * 160
    assert padded_length(samples) == max(samples, end)
    assert samples - end < 0.75 * 25600
    if len(starts) > 1:
        assert samples - starts[-1] * 160 >= 0.75 * 25600


@pytest.mark.parametrize(("samples", "count"), [(0, 1), (31_519, 1), (31_520, 2), (480_000, 38)])
def test_the_last_slice_needs_three_quarters(samples, count):
    assert len(slice_starts(samples)) == count
    assert utterance_slices(np.ones(samples, np.float32), 12).shape == (count, 160, 12)


def test_what_follows_the_last_slice_counts_in_the_spectrum_only_up_to_it():
    samples = np.random.default_rng(0).normal(0, 0.1, 31_000).astype(np.float32)
    assert padded_length(len(samples)) == len(samples)  # one slice, which ends inside
    assert utterance_mel(samples, 40).shape == (31_000 // 160 + 1, 40)
    np.testing.assert_array_equal(utterance_slices(samples, 40)[0], utterance_mel(samples, 40)[:160])


def test_a_slice_s_frames_are_the_whole_s():
    samples = np.random.default_rng(1).normal(0, 0.1, 60_000).astype(np.float32)
    slices, mel = utterance_slices(samples, 40), utterance_mel(samples, 40)
    for part, start in zip(slices, slice_starts(60_000), strict=True):
        np.testing.assert_array_equal(part, mel[start : start + 160])


def test_mel_power_by_its_definition():
    """Frame by frame, by a matrix: centred on every hop, silent beyond the ends, weighted sums of bins."""
    rng = np.random.default_rng(2)
    samples, n_fft, hop = rng.normal(0, 1, 1003), 60, 24
    found = mel_power(samples, 1200, n_fft=n_fft, hop_length=hop, n_mels=5)
    assert found.shape == (1003 // hop + 1, 5)
    assert found.dtype == np.float32
    padded = np.pad(samples, n_fft // 2)
    window = np.sin(np.pi * np.arange(n_fft) / n_fft) ** 2
    angles = 2 * np.pi * np.outer(np.arange(n_fft // 2 + 1), np.arange(n_fft)) / n_fft
    for t in (0, 1, 20, 41):
        frame = padded[t * hop : t * hop + n_fft] * window
        power = (np.cos(angles) @ frame) ** 2 + (np.sin(angles) @ frame) ** 2
        np.testing.assert_allclose(found[t], mel_filters(1200, n_fft, 5) @ power, rtol=1e-6)


def test_the_scale_is_slaney_s():
    """66.7 Hz a mel below 1 kHz, 27 mels from there to 6.4 kHz; inverses of each other."""
    np.testing.assert_allclose(
        slaney_mels(np.array([0.0, 200.0, 1000.0, 6400.0])), [0, 3, 15, 42], atol=1e-12
    )
    mels = np.linspace(0, 60, 301)
    np.testing.assert_allclose(slaney_mels(slaney_frequencies(mels)), mels, rtol=0, atol=1e-10)


def test_filters_have_unit_area():
    """Each triangle's peak times half its width is one; they start at 0 and end at half the sample rate."""
    filters = mel_filters(16000, 16000, 40)  # bins of 1 Hz
    np.testing.assert_allclose(filters.sum(axis=1), 1, rtol=0.01)
    assert filters[0, 1] > 0
    assert filters[-1, 7999] > 0
    assert (filters >= 0).all()
    with pytest.raises(ValueError, match="read-only"):
        filters[0, 0] = 1


def burst(before: int, during: int, after: int) -> np.ndarray:
    sound = np.random.default_rng(0).normal(0, 0.1, during)
    return np.concatenate([np.zeros(before), sound, np.zeros(after)]).astype(np.float32)


def test_sound_is_found_to_a_hop():
    samples = burst(20_000, 9_000, 15_000)
    start, stop = sounding(samples, 20)
    assert 20_000 - 1024 - 512 < start <= 20_000
    assert 29_000 <= stop < 29_000 + 1024 + 512
    np.testing.assert_array_equal(trim(samples, 20), samples[start:stop])
    louder = sounding(samples, 60)
    assert louder[0] <= start
    assert louder[1] >= stop


def test_pauses_inside_stay_and_quiet_ends_go_by_their_level():
    tone = 0.1 * np.sin(np.arange(20_480) * 0.3)
    samples = np.concatenate([tone * 10**-0.75, tone, np.zeros(20_480), tone, tone * 10**-1.1])
    assert sounding(samples, 20)[0] == 0  # 15 dB below
    assert 4 * 20_480 <= sounding(samples, 20)[1] < 4 * 20_480 + 1536  # 22 dB below
    assert sounding(samples, 30) == (0, 5 * 20_480)


@pytest.mark.parametrize("length", [0, 1, 511, 2047, 5000])
def test_silence_and_scraps_are_kept_whole(length):
    assert sounding(np.zeros(length, np.float32), 20) == (0, length)


def test_a_file_is_resampled_averaged_and_trimmed(tmp_path):
    sound = burst(9_000, 48_000, 9_000)
    soundfile.write(tmp_path / "a.wav", np.stack([sound, sound * 0.5], axis=1), 24_000, subtype="FLOAT")
    mono = resample((sound + sound * 0.5) / 2, 24_000, SAMPLE_RATE, quality="HQ")
    np.testing.assert_array_equal(read_speaker(tmp_path / "a.wav"), trim(mono, 20))
    assert 32_000 <= len(read_speaker(tmp_path / "a.wav")) < 32_000 + 2 * 1536
    finer = read_audio(tmp_path / "a.wav", SAMPLE_RATE)
    assert 0 < np.abs(finer - read_audio(tmp_path / "a.wav", SAMPLE_RATE, quality="HQ")).max() < 1e-2
