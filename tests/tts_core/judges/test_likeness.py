"""The voice encoder in NumPy against PyTorch's LSTM, with random weights."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.tts_core.judges import weights
from tts_core.audio.speaker_slices import utterance_slices
from tts_core.judges.likeness import N_MELS, VoiceEncoder, amplified, cosine


def speech(seconds: float, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.normal(0, 0.1, int(16000 * seconds))).astype(np.float32)


def test_the_lstm_is_torchs(tmp_path: Path) -> None:
    lstm = weights.voice_encoder(tmp_path / "a.pt")
    encoder, sound = VoiceEncoder((tmp_path / "a.pt").read_bytes()), speech(2.5, 1)
    mels = torch.from_numpy(utterance_slices(sound, N_MELS))

    def oracle(dtype: torch.dtype) -> np.ndarray:
        with torch.no_grad():
            hidden = lstm.to(dtype)(mels.to(dtype))[1][0][-1]
        linear = [
            torch.from_numpy(encoder.weights[f"linear.{kind}"]).to(dtype) for kind in ("weight", "bias")
        ]
        unit = torch.nn.functional.normalize
        return unit(unit(torch.nn.functional.linear(hidden, *linear).relu()).mean(0), dim=0).numpy()

    exact, theirs = oracle(torch.float64), oracle(torch.float32)
    found = encoder.embed_whole(sound)
    error = np.abs(found - exact).max()
    assert error <= 16 * np.abs(theirs - exact).max() + 4 * np.finfo(np.float32).eps
    assert np.abs(exact).max() > 0.1


def test_a_voice_is_like_itself_whatever_its_level(tmp_path: Path) -> None:
    weights.voice_encoder(tmp_path / "a.pt")
    encoder, sound = VoiceEncoder((tmp_path / "a.pt").read_bytes()), speech(2, 2)
    quiet = np.concatenate([np.zeros(8000), sound * 1e-3, np.zeros(4000)]).astype(np.float32)
    loud = encoder.embed(sound * np.float32(0.2))
    assert cosine(loud, loud) == pytest.approx(1)
    assert cosine(loud, encoder.embed(quiet)) > 0.999


def test_only_quiet_recordings_are_amplified() -> None:
    quiet, loud = np.full(100, 1e-3, np.float32), np.full(100, 0.5, np.float32)
    np.testing.assert_allclose(amplified(quiet), 10 ** (-30 / 20), rtol=1e-6)
    np.testing.assert_array_equal(amplified(loud), loud)
    np.testing.assert_array_equal(amplified(np.zeros(3, np.float32)), 0)
