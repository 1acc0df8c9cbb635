import numpy as np
import pytest

from tts_core.audio.mel import mel_filters, mel_power


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


def test_filters_cannot_be_changed_for_others():
    """They are golden: tests/golden/speaker_checks.py."""
    with pytest.raises(ValueError, match="read-only"):
        mel_filters(16000, 400, 40)[0, 0] = 1
