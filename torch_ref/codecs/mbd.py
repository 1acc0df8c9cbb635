"""Multi-band diffusion: a denoising U-Net per band turns noise into sound, conditioned on a codec's latents.

Paper: San Roman et al. 2023, arXiv 2308.02560. Upstream: facebookresearch/audiocraft@896ec7c models/unet.py,
models/multibanddiffusion.py and modules/diffusion_schedule.py, MIT; parameter names are those of its file.
Differs from upstream: a band's weights are loaded only while it runs; the schedule is float64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_ref.codecs.band_split import match_levels, split_bands
from torch_ref.layers.conv import Conv1d, ConvTranspose1d
from torch_ref.layers.norm import GroupNorm
from torch_ref.limits.precision import exactly
from tts_core.codecs.mbd import (
    MbdBandConfig,
    MbdConfig,
    MbdProcessorConfig,
    MbdUnetConfig,
    check_items,
    nearest_frames,
)
from tts_core.codecs.mbd_schedule import Transition, check_steps, default_steps, transitions
from tts_core.nn.noise import NormalNoise

NORM_EPS = 1e-5


class ResBlock(nn.Module):
    """Two dilated convolutions around a skip. (B, C, T) → same."""

    def __init__(self, channels: int, groups: int, dilation: int):
        super().__init__()
        self.norm1 = GroupNorm(groups, channels, NORM_EPS)
        self.conv1 = Conv1d(channels, channels, 3, dilation=dilation, padding=dilation)
        self.norm2 = GroupNorm(groups, channels, NORM_EPS)
        self.conv2 = Conv1d(channels, channels, 3, dilation=dilation, padding=dilation)

    def forward(self, x: Tensor) -> Tensor:
        h = self.conv1(self.norm1(x).relu())
        return x + self.conv2(self.norm2(h).relu())


class EncoderLayer(nn.Module):
    """One level down. (B, C, T) → (B, C', ceil(T / stride))."""

    def __init__(self, in_channels: int, channels: int, config: MbdUnetConfig):
        super().__init__()
        self.stride = config.stride
        self.conv = Conv1d(
            in_channels, channels, config.kernel, stride=config.stride, padding=config.padding, bias=False
        )
        self.norm = GroupNorm(config.norm_groups, channels, NORM_EPS)
        self.res_blocks = nn.ModuleList(
            ResBlock(channels, config.norm_groups, 2**i) for i in range(config.res_blocks)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = F.pad(x, (0, -x.shape[2] % self.stride))
        x = self.norm(self.conv(x)).relu()
        for block in self.res_blocks:
            x = block(x)
        return x


class DecoderLayer(nn.Module):
    """One level up. (B, C, T) → (B, C', stride T)."""

    def __init__(self, channels: int, out_channels: int, config: MbdUnetConfig):
        super().__init__()
        self.res_blocks = nn.ModuleList(
            ResBlock(channels, config.norm_groups, 2**i) for i in range(config.res_blocks)
        )
        self.norm = GroupNorm(config.norm_groups, channels, NORM_EPS)
        self.convtr = ConvTranspose1d(
            channels, out_channels, config.kernel, stride=config.stride, padding=config.padding, bias=False
        )

    def forward(self, x: Tensor) -> Tensor:
        for block in self.res_blocks:
            x = block(x)
        return self.convtr(self.norm(x).relu())


class DiffusionUnet(nn.Module):
    """Estimate of the noise in a band at a diffusion step. (B, 1, T), latents (B, C, F) → (B, 1, T)."""

    def __init__(self, config: MbdUnetConfig, num_steps: int):
        super().__init__()
        widths = config.channels
        self.encoders = nn.ModuleList(
            EncoderLayer(into, width, config) for into, width in zip((1, *widths), widths, strict=False)
        )
        self.decoders = nn.ModuleList(
            DecoderLayer(width, out, config)
            for width, out in zip(widths[::-1], (*widths[-2::-1], 1), strict=True)
        )
        self.embedding = nn.Embedding(num_steps, widths[0])
        self.embeddings = nn.ModuleList(nn.Embedding(num_steps, width) for width in widths[1:])
        self.conv_codec = Conv1d(config.codec_dim, widths[-1], 1)

    def forward(self, x: Tensor, step: int, condition: Tensor) -> Tensor:
        tables = cast(list[nn.Embedding], [self.embedding, *self.embeddings])
        skips, z = [], x
        for encoder, table in zip(self.encoders, tables, strict=True):
            z = encoder(z) + table.weight[step][:, None]
            skips.append(z)
        frames = torch.as_tensor(nearest_frames(z.shape[2], condition.shape[2])).to(x.device)
        # upstream adds the condition in place, to a tensor that is also the last skip, and continues with
        # zeros: the condition reaches the decoder only through that skip
        skips[-1] = z + self.conv_codec(condition)[:, :, frames]
        z = torch.zeros_like(z)
        for decoder in self.decoders:
            skip = skips.pop()
            z = decoder(z[:, :, : skip.shape[2]] + skip)
        return z[:, :, : x.shape[2]]


class Processor(nn.Module):
    """Rescales the sub-bands of a sampled band to their level in real sound. (B, L) → same."""

    def __init__(self, config: MbdProcessorConfig, sample_rate: int):
        super().__init__()
        self.config, self.sample_rate = config, sample_rate
        self.counts = nn.Parameter(torch.ones(1))
        self.sum_x = nn.Parameter(torch.zeros(config.n_bands))
        self.sum_x2 = nn.Parameter(torch.ones(config.n_bands))
        self.sum_target_x2 = nn.Parameter(torch.ones(config.n_bands))

    def forward(self, x: Tensor) -> Tensor:
        mean = self.sum_x / self.counts
        deviation = (self.sum_x2 / self.counts - mean.square()).clamp(min=0).sqrt()
        target = self.sum_target_x2 / self.counts  # a variance: upstream does not take its root
        power = torch.as_tensor(self.config.power_std, dtype=x.dtype).to(x.device)
        gain = (deviation / target) ** power
        bands = split_bands(x, self.config.n_bands, self.sample_rate)
        return (bands * gain[:, None] + mean[:, None]).sum(dim=1)


class Band(nn.Module):
    """One band: its network, and its processor, if any."""

    def __init__(self, config: MbdBandConfig, sample_rate: int):
        super().__init__()
        self.config = config
        self.unet = DiffusionUnet(config.unet, config.schedule.num_steps)
        self.processor = Processor(config.processor, sample_rate) if config.processor else None

    def sample(self, condition: Tensor, moves: Sequence[Transition], draw: Callable[[int], Tensor]) -> Tensor:
        """Denoise random samples transition by transition, without the processor. Latents (B, C, F) → (B, L).

        draw: row → (B, L) of normal numbers; row 0 is the start, row i the fresh noise of transition i.
        """
        limit = self.config.schedule.clip
        x = draw(0)[:, None] * self.config.schedule.noise_scale
        for i, move in enumerate(moves, 1):
            estimate = self.unet(x, move.step, condition)
            x = (x - move.estimate_scale * estimate) * move.x_scale
            if move.fresh_scale:
                x = x + move.fresh_scale * draw(i)[:, None]
            x = x.clamp(-limit, limit)
        return x[:, 0]

    def process(self, x: Tensor) -> Tensor:
        """Apply the processor to a sampled band. (B, L) → same."""
        return x if self.processor is None else self.processor(x)


class Bands(nn.Module):
    """All bands at once, under their canonical names."""

    def __init__(self, config: MbdConfig):
        super().__init__()
        self.bands = nn.ModuleList(Band(band, config.sample_rate) for band in config.bands)


class MultiBandDiffusion:
    """All bands, loaded one at a time."""

    def __init__(self, config: MbdConfig, band_weights: Callable[[int], Mapping[str, Tensor]]):
        """band_weights: band's number → its tensors by the names of `band_parameter_shapes`
        (tts_core.codecs.mbd), on the device and in the dtype to compute in. They are freed when the band is
        done.
        """
        self.config = config
        self.band_weights = band_weights

    @exactly
    @torch.inference_mode()
    def decode(
        self,
        latents: Sequence[Tensor | np.ndarray],
        references: Sequence[Tensor | np.ndarray],
        noise: Sequence[NormalNoise],
        *,
        steps: Sequence[int] | None = None,
        check: Callable[[], None] | None = None,
    ) -> list[Tensor]:
        """Sample a waveform for each item's latents, its bands at the levels of the codec's own waveform.

        latents: (C, F) each.
        references: (L,) each, the codec decoder's waveforms.
        noise: one source each; row b n + i is draw i of band b, n the number of transitions.
        steps: None uses `default_steps`.
        check: called before each transition; may raise.
        Returns (L,) each. Raises UsageError for steps or shapes that do not fit, before loading any weights.
        """
        check_items(
            self.config, [np.shape(x) for x in latents], [np.shape(x) for x in references], len(noise)
        )
        moves = [
            transitions(schedule, check_steps(schedule, default_steps(schedule) if steps is None else steps))
            for schedule in (band.schedule for band in self.config.bands)
        ]
        first, sums = 0, list[Tensor]()
        for b, move in enumerate(moves):
            parts = self._run_band(b, move, first, latents, references, noise, check)
            sums = [total + part for total, part in zip(sums, parts, strict=True)] if sums else parts
            first += len(move)
        return [
            match_levels(total, torch.as_tensor(wave).to(total), self.config.sample_rate)
            for total, wave in zip(sums, references, strict=True)
        ]

    def band(self, index: int) -> Band:
        """Load one band with its weights."""
        with torch.device("meta"):
            band = Band(self.config.bands[index], self.config.sample_rate)
        band.load_state_dict(self.band_weights(index), strict=True, assign=True)
        return band.eval()

    def _run_band(
        self,
        index: int,
        moves: Sequence[Transition],
        first: int,
        latents: Sequence[Tensor | np.ndarray],
        references: Sequence[Tensor | np.ndarray],
        noise: Sequence[NormalNoise],
        check: Callable[[], None] | None,
    ) -> list[Tensor]:
        """Sample and process one band of every item; its weights are freed on return."""
        band = self.band(index)
        weight, parts = band.unet.embedding.weight, []
        for latent, wave, source in zip(latents, references, noise, strict=True):
            length = wave.shape[0]

            def draw(row: int, source: NormalNoise = source, length: int = length) -> Tensor:
                if check is not None:
                    check()
                return torch.as_tensor(source.normal(first + row, (length,)))[None].to(weight)

            condition = torch.as_tensor(latent)[None].to(weight)
            parts.append(band.process(band.sample(condition, moves, draw))[0])
        return parts
