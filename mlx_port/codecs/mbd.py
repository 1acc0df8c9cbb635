"""Multi-band diffusion: a denoising U-Net per band turns noise into sound, conditioned on a codec's latents.

Paper: San Roman et al. 2023, arXiv 2308.02560. Upstream: facebookresearch/audiocraft@896ec7c models/unet.py,
models/multibanddiffusion.py and modules/diffusion_schedule.py, MIT; parameter names are those of its file.
Differs from upstream: a band's weights are loaded only while it runs; the schedule is float64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import mlx.core as mx
import numpy as np
from mlx import nn

from mlx_port.codecs.band_split import match_levels, split_bands
from mlx_port.layers.conv import Conv1d, ConvTranspose1d
from mlx_port.layers.norm import GroupNorm
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
    """Two dilated convolutions around a skip. (B, T, C) → same."""

    def __init__(self, channels: int, groups: int, dilation: int):
        super().__init__()
        self.norm1 = GroupNorm(groups, channels, NORM_EPS)
        self.conv1 = Conv1d(channels, channels, 3, dilation=dilation, padding=dilation)
        self.norm2 = GroupNorm(groups, channels, NORM_EPS)
        self.conv2 = Conv1d(channels, channels, 3, dilation=dilation, padding=dilation)

    def __call__(self, x: mx.array) -> mx.array:
        h = self.conv1(nn.relu(self.norm1(x)))
        return x + self.conv2(nn.relu(self.norm2(h)))


class EncoderLayer(nn.Module):
    """One level down. (B, T, C) → (B, ceil(T / stride), C')."""

    def __init__(self, in_channels: int, channels: int, config: MbdUnetConfig):
        super().__init__()
        self.stride = config.stride
        self.conv = Conv1d(
            in_channels, channels, config.kernel, stride=config.stride, padding=config.padding, bias=False
        )
        self.norm = GroupNorm(config.norm_groups, channels, NORM_EPS)
        self.res_blocks = [ResBlock(channels, config.norm_groups, 2**i) for i in range(config.res_blocks)]

    def __call__(self, x: mx.array) -> mx.array:
        x = mx.pad(x, [(0, 0), (0, -x.shape[1] % self.stride), (0, 0)])
        x = nn.relu(self.norm(self.conv(x)))
        for block in self.res_blocks:
            x = block(x)
        return x


class DecoderLayer(nn.Module):
    """One level up. (B, T, C) → (B, stride T, C')."""

    def __init__(self, channels: int, out_channels: int, config: MbdUnetConfig):
        super().__init__()
        self.res_blocks = [ResBlock(channels, config.norm_groups, 2**i) for i in range(config.res_blocks)]
        self.norm = GroupNorm(config.norm_groups, channels, NORM_EPS)
        self.convtr = ConvTranspose1d(
            channels, out_channels, config.kernel, stride=config.stride, padding=config.padding, bias=False
        )

    def __call__(self, x: mx.array) -> mx.array:
        for block in self.res_blocks:
            x = block(x)
        return self.convtr(nn.relu(self.norm(x)))


class DiffusionUnet(nn.Module):
    """Estimate of the noise in a band at a diffusion step. (B, T, 1), latents (B, F, C) → (B, T, 1)."""

    def __init__(self, config: MbdUnetConfig, num_steps: int):
        super().__init__()
        widths = config.channels
        self.encoders = [
            EncoderLayer(into, width, config) for into, width in zip((1, *widths), widths, strict=False)
        ]
        self.decoders = [
            DecoderLayer(width, out, config)
            for width, out in zip(widths[::-1], (*widths[-2::-1], 1), strict=True)
        ]
        self.embedding = nn.Embedding(num_steps, widths[0])
        self.embeddings = [nn.Embedding(num_steps, width) for width in widths[1:]]
        self.conv_codec = Conv1d(config.codec_dim, widths[-1], 1)

    def __call__(self, x: mx.array, step: int, condition: mx.array) -> mx.array:
        tables = [self.embedding, *self.embeddings]
        skips, z = [], x
        for encoder, table in zip(self.encoders, tables, strict=True):
            z = encoder(z) + table.weight[step]
            skips.append(z)
        frames = mx.array(nearest_frames(z.shape[1], condition.shape[1]))
        # upstream adds the condition in place, to a tensor that is also the last skip, and continues with
        # zeros: the condition reaches the decoder only through that skip
        skips[-1] = z + self.conv_codec(condition)[:, frames]
        z = mx.zeros_like(z)
        for decoder in self.decoders:
            skip = skips.pop()
            z = decoder(z[:, : skip.shape[1]] + skip)
        return z[:, : x.shape[1]]


class Processor(nn.Module):
    """Rescales the sub-bands of a sampled band to their level in real sound. (B, L) → same."""

    def __init__(self, config: MbdProcessorConfig, sample_rate: int):
        super().__init__()
        self.config, self.sample_rate = config, sample_rate
        self.counts = mx.ones((1,))
        self.sum_x = mx.zeros((config.n_bands,))
        self.sum_x2 = mx.ones((config.n_bands,))
        self.sum_target_x2 = mx.ones((config.n_bands,))

    def __call__(self, x: mx.array) -> mx.array:
        mean = self.sum_x / self.counts
        deviation = mx.sqrt(mx.maximum(self.sum_x2 / self.counts - mean.square(), 0))
        target = self.sum_target_x2 / self.counts  # a variance: upstream does not take its root
        power = mx.array(self.config.power_std)
        gain = (deviation / target) ** power
        bands = split_bands(x, self.config.n_bands, self.sample_rate)
        return (bands * gain[:, None] + mean[:, None]).sum(axis=1)


class Band(nn.Module):
    """One band: its network, and its processor, if any."""

    def __init__(self, config: MbdBandConfig, sample_rate: int):
        super().__init__()
        self.config = config
        self.unet = DiffusionUnet(config.unet, config.schedule.num_steps)
        self.processor = Processor(config.processor, sample_rate) if config.processor else None

    def sample(
        self, condition: mx.array, moves: Sequence[Transition], draw: Callable[[int], mx.array]
    ) -> mx.array:
        """Denoise random samples transition by transition, without the processor. Latents (B, F, C) → (B, L).

        draw: row → (B, L) of normal numbers; row 0 is the start, row i the fresh noise of transition i.
        """
        limit = self.config.schedule.clip
        x = draw(0)[..., None] * self.config.schedule.noise_scale
        for i, move in enumerate(moves, 1):
            estimate = self.unet(x, move.step, condition)
            x = (x - move.estimate_scale * estimate) * move.x_scale
            if move.fresh_scale:
                x = x + move.fresh_scale * draw(i)[..., None]
            x = mx.clip(x, -limit, limit)
            mx.eval(x)
        return x[..., 0]

    def process(self, x: mx.array) -> mx.array:
        """Apply the processor to a sampled band. (B, L) → same."""
        return x if self.processor is None else self.processor(x)


class Bands(nn.Module):
    """All bands at once, under their canonical names."""

    def __init__(self, config: MbdConfig):
        super().__init__()
        self.bands = [Band(band, config.sample_rate) for band in config.bands]


class MultiBandDiffusion:
    """All bands, loaded one at a time."""

    def __init__(self, config: MbdConfig, band_weights: Callable[[int], Mapping[str, mx.array]]):
        """band_weights: band's number → its tensors by the names of `band_parameter_shapes` (in
        tts_core.codecs.mbd), channels last. They are freed when the band is done.
        """
        self.config = config
        self.band_weights = band_weights

    def decode(
        self,
        latents: Sequence[mx.array | np.ndarray],
        references: Sequence[mx.array | np.ndarray],
        noise: Sequence[NormalNoise],
        *,
        steps: Sequence[int] | None = None,
        check: Callable[[], None] | None = None,
    ) -> list[mx.array]:
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
        first, sums = 0, list[mx.array]()
        for b, move in enumerate(moves):
            parts = self._run_band(b, move, first, latents, references, noise, check)
            sums = [total + part for total, part in zip(sums, parts, strict=True)] if sums else parts
            first += len(move)
        return [
            match_levels(total, mx.array(wave), self.config.sample_rate)
            for total, wave in zip(sums, references, strict=True)
        ]

    def band(self, index: int) -> Band:
        """Load one band with its weights."""
        band = Band(self.config.bands[index], self.config.sample_rate)
        band.load_weights(list(self.band_weights(index).items()), strict=True)
        band.eval()
        return band

    def _run_band(
        self,
        index: int,
        moves: Sequence[Transition],
        first: int,
        latents: Sequence[mx.array | np.ndarray],
        references: Sequence[mx.array | np.ndarray],
        noise: Sequence[NormalNoise],
        check: Callable[[], None] | None,
    ) -> list[mx.array]:
        """Sample and process one band of every item; its weights are freed on return."""
        band = self.band(index)
        parts = []
        for latent, wave, source in zip(latents, references, noise, strict=True):
            length = wave.shape[0]

            def draw(row: int, source: NormalNoise = source, length: int = length) -> mx.array:
                if check is not None:
                    check()
                return mx.array(source.normal(first + row, (length,)))[None]

            condition = mx.array(latent).T[None]
            parts.append(band.process(band.sample(condition, moves, draw))[0])
            mx.eval(parts[-1])
        return parts
