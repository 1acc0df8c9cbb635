import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tiny.metavoice import read_speaker
from tests.tts_core.audio.test_silence import burst
from tts_core.audio.files import read_audio, resample
from tts_core.audio.silence import trim
from tts_core.audio.speaker_slices import (
    SAMPLE_RATE,
    padded_length,
    slice_starts,
    utterance_mel,
    utterance_slices,
)

soundfile = pytest.importorskip("soundfile")


@given(st.integers(0, 2_000_000))
def test_slices_cover_the_recording(samples):
    """In steps of 77 frames, all inside the padded recording; at most three quarters of a slice are lost."""
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


def test_a_file_is_resampled_averaged_and_trimmed(tmp_path):
    sound = burst(9_000, 48_000, 9_000)
    soundfile.write(tmp_path / "a.wav", np.stack([sound, sound * 0.5], axis=1), 24_000, subtype="FLOAT")
    mono = resample((sound + sound * 0.5) / 2, 24_000, SAMPLE_RATE, quality="HQ")
    np.testing.assert_array_equal(read_speaker(tmp_path / "a.wav"), trim(mono, 20))
    assert 32_000 <= len(read_speaker(tmp_path / "a.wav")) < 32_000 + 2 * 1536
    finer = read_audio(tmp_path / "a.wav", SAMPLE_RATE)
    assert 0 < np.abs(finer - read_audio(tmp_path / "a.wav", SAMPLE_RATE, quality="HQ")).max() < 1e-2
