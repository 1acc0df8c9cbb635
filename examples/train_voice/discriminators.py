"""Discriminators of waveforms, used only to polish the codec.

Papers: Kong et al., "HiFi-GAN", 2020 (periods); Défossez et al., "EnCodec", 2022 (spectra). Own
implementation.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PERIODS = (2, 3, 5, 7, 11)
WINDOWS = (2048, 1024, 512, 256)
Verdict = list[Tensor]  # a discriminator's feature maps and, last, its score


class PeriodJudge(nn.Module):
    """Discriminator of the waveform folded at a period. (B, L) → verdict."""

    def __init__(self, period: int, widths: tuple[int, ...] = (16, 64, 128, 256, 256)):
        super().__init__()
        self.period = period
        into = (1, *widths[:-1])
        self.layers = nn.ModuleList(
            nn.Conv2d(a, b, (5, 1), stride=(3 if b > a else 1, 1), padding=(2, 0))
            for a, b in zip(into, widths, strict=True)
        )
        self.score = nn.Conv2d(widths[-1], 1, (3, 1), padding=(1, 0))

    def forward(self, samples: Tensor) -> Verdict:
        x = F.pad(samples, (0, -samples.shape[1] % self.period), mode="reflect")
        x = x.unflatten(1, (-1, self.period))[:, None]
        return judged(self.layers, self.score, x)


class SpectrumJudge(nn.Module):
    """Discriminator of the complex short-time spectrum. (B, L) → verdict."""

    def __init__(self, n_fft: int, width: int = 32):
        super().__init__()
        self.n_fft = n_fft
        self.register_buffer("window", torch.hann_window(n_fft), persistent=False)
        self.layers = nn.ModuleList(
            [
                nn.Conv2d(2, width, (3, 9), stride=(1, 2), padding=(1, 4)),
                *(
                    nn.Conv2d(width, width, (3, 9), stride=(1, 2), padding=(d, 4), dilation=(d, 1))
                    for d in (1, 2, 4)
                ),
                nn.Conv2d(width, width, 3, padding=1),
            ]
        )
        self.score = nn.Conv2d(width, 1, 3, padding=1)

    def forward(self, samples: Tensor) -> Verdict:
        with torch.autocast(samples.device.type, enabled=False):
            spectrum = torch.stft(
                samples,
                self.n_fft,
                self.n_fft // 4,
                window=self.get_buffer("window"),
                normalized=True,
                return_complex=True,
            )
            x = torch.stack((spectrum.real, spectrum.imag), dim=1).transpose(2, 3)  # (B, 2, T, bins)
        return judged(self.layers, self.score, x)


class Judges(nn.Module):
    """All discriminators. (B, L) → a verdict each."""

    def __init__(self):
        super().__init__()
        self.judges = nn.ModuleList(
            [*(PeriodJudge(period) for period in PERIODS), *(SpectrumJudge(n_fft) for n_fft in WINDOWS)]
        )

    def forward(self, samples: Tensor) -> list[Verdict]:
        with torch.autocast(
            samples.device.type, torch.bfloat16, enabled=samples.is_cuda, cache_enabled=False
        ):
            return [judge(samples) for judge in self.judges]


def judged(layers: nn.ModuleList, score: nn.Module, x: Tensor) -> Verdict:
    features = []
    for layer in layers:
        x = F.leaky_relu(layer(x), 0.1)
        features.append(x)
    return [*features, score(x)]


def judges_loss(real: list[Verdict], made: list[Verdict]) -> Tensor:
    """Least-squares loss of the discriminators: real speech should score 1, generated 0."""
    pairs = zip(real, made, strict=True)
    losses = [(1 - r[-1].float()).square().mean() + m[-1].float().square().mean() for r, m in pairs]
    return torch.stack(losses).mean()


def makers_losses(real: list[Verdict], made: list[Verdict]) -> tuple[Tensor, Tensor]:
    """Losses of the generator: adversarial (generated speech should score 1), and feature matching."""
    adversarial = torch.stack([(1 - m[-1].float()).square().mean() for m in made]).mean()
    features = [
        (a.float() - b.float()).abs().mean() / b.float().abs().mean().clamp_min(1e-3)
        for r, m in zip(real, made, strict=True)
        for a, b in zip(m[:-1], r[:-1], strict=True)
    ]
    return adversarial, torch.stack(features).mean()
