import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts_core.audio.speaker_slices import (
    padded_length,
    slice_starts,
    utterance_mel,
    utterance_slices,
)


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
