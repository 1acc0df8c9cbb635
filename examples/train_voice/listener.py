"""A judge of words for the codec's polish. It learns to tell phones from real speech; what the decoder says
should sound to it as the real speech does. Thrown away afterwards.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from examples.train_voice.flite import PHONES, SAMPLE_RATE
from examples.train_voice.spectral import FLOOR, mel_filters

N_FFT, BANDS = 512, 40
STEP = 160  # samples: 10 ms, three to a codec frame
WIDTH = 192


class Listener(nn.Module):
    """Each frame's phone. (B, 480 T) → (B, phones, T) logits, from broad bands of the spectrum alone."""

    def __init__(self):
        super().__init__()
        filters = torch.from_numpy(mel_filters(N_FFT, BANDS, SAMPLE_RATE))
        self.register_buffer("filters", filters, persistent=False)
        self.register_buffer("window", torch.hann_window(N_FFT), persistent=False)
        self.layers = nn.ModuleList(
            [
                nn.Conv1d(BANDS, WIDTH, 5, padding=2),
                nn.Conv1d(WIDTH, WIDTH, 5, stride=3, padding=1),
                nn.Conv1d(WIDTH, WIDTH, 3, padding=1),
                nn.Conv1d(WIDTH, WIDTH, 3, padding=1),
            ]
        )
        self.head = nn.Conv1d(WIDTH, len(PHONES), 1)

    def forward(self, samples: Tensor) -> Tensor:
        spectrum = torch.stft(samples, N_FFT, STEP, window=self.get_buffer("window"), return_complex=True)
        magnitude = torch.sqrt(spectrum.real.square() + spectrum.imag.square() + 1e-12)
        bands = torch.log10((magnitude.transpose(1, 2) @ self.get_buffer("filters")).clamp_min(100 * FLOOR))
        x = bands.transpose(1, 2)[:, :, :-1]  # (B, bands, 3 T)
        for layer in self.layers:
            x = F.gelu(layer(x))
        return self.head(x)


def unlike(made: Tensor, real: Tensor) -> Tensor:
    """How differently two sounds are heard: cross-entropy of logits (B, phones, T) each, less real's own."""
    told = real.detach().softmax(1)
    return (told * (real.detach().log_softmax(1) - made.log_softmax(1))).sum(1).mean()
