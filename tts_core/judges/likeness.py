"""Likeness of two voices: the cosine of their vectors by Resemblyzer's network.

Paper: Wan et al. 2017, "Generalized end-to-end loss for speaker verification", arXiv 1710.10467. Upstream:
Resemblyzer 0.1.4 (Apache-2.0). Differs from upstream: silence is trimmed at both ends by level, where
upstream cuts every pause with webrtcvad.
"""

from __future__ import annotations

import numpy as np

from tts_core.audio.silence import trim
from tts_core.audio.speaker_slices import TRIM_DB, utterance_slices
from tts_core.judges.state_dict import read_state_dict

SAMPLE_RATE = 16_000  # Hz
N_MELS, LAYERS = 40, 3
LEAST_DBFS = -30.0  # quieter recordings are amplified to it


class VoiceEncoder:
    """The published network: an LSTM of three layers, a projection, unit length. content: of its file."""

    def __init__(self, content: bytes):
        self.weights = read_state_dict(content, "model_state")

    def embed(self, samples: np.ndarray) -> np.ndarray:
        """Encode (L,) float32 samples at 16 kHz as a vector (256,) of unit length."""
        return self.embed_whole(amplified(trim(samples, TRIM_DB)))

    def embed_whole(self, samples: np.ndarray) -> np.ndarray:
        """Encode samples as they are."""
        x = utterance_slices(samples, N_MELS)  # (P, T, mels)
        for layer in range(LAYERS):
            x = self._lstm(layer, x)
        hidden = np.maximum(x[:, -1] @ self.weights["linear.weight"].T + self.weights["linear.bias"], 0)
        return unit(unit(hidden).mean(0))

    def _lstm(self, layer: int, x: np.ndarray) -> np.ndarray:
        """(P, T, D) → (P, T, 256); gates in torch's order: input, forget, cell, output."""
        of = {
            name: self.weights[f"lstm.{name}_l{layer}"]
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        }
        inputs = x @ of["weight_ih"].T + (of["bias_ih"] + of["bias_hh"])
        hidden = cell = np.zeros((len(x), of["weight_hh"].shape[1]), np.float32)
        states = []
        for step in range(x.shape[1]):
            gates = np.split(inputs[:, step] + hidden @ of["weight_hh"].T, 4, axis=1)
            opened, forget, shown = sigmoid(gates[0]), sigmoid(gates[1]), sigmoid(gates[3])
            cell = forget * cell + opened * np.tanh(gates[2])
            hidden = shown * np.tanh(cell)
            states.append(hidden)
        return np.stack(states, axis=1)


def amplified(samples: np.ndarray) -> np.ndarray:
    """Raise samples to a root mean square of -30 dBFS if they are quieter; silence stays."""
    level = float(np.sqrt(np.mean(samples.astype(np.float64) ** 2)))
    wanted = 10 ** (LEAST_DBFS / 20)
    return samples * np.float32(wanted / level) if 0 < level < wanted else samples


def cosine(first: np.ndarray, other: np.ndarray) -> float:
    """Cosine of two vectors of unit length."""
    return float(first @ other)


def unit(x: np.ndarray) -> np.ndarray:
    """Divide by the length over the last axis; a zero vector stays."""
    return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12)


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)), without overflow."""
    return np.float32(0.5) * (1 + np.tanh(np.float32(0.5) * x))
