import numpy as np
import pytest

from tts_core.audio.mel import mel_filters, mel_power, slaney_frequencies, slaney_mels


def test_mel_power_by_its_definition():
    """Frame by frame, by a matrix: centered on every hop, silent past the ends, weighted sums of bins."""
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
    """66.7 Hz per mel below 1 kHz, 27 mels from there to 6.4 kHz; the two functions are inverses."""
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
