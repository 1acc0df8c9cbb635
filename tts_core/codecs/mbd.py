"""Configuration and tensor names of multi-band diffusion: a denoising U-Net per band, each with its own cfg.

Source: facebookresearch/audiocraft (MIT) and the cfg objects inside its `mbd_comp_8.pt`. Names are those of
the file, prefixed with `bands.N.unet.` and `bands.N.processor.`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tts_core.codecs.encodec import EncodecConfig
from tts_core.config import MOST_LAYERS, Config, Count, FileForm, Signed, at, mapping
from tts_core.errors import CheckpointError, UsageError
from tts_core.models import Network
from tts_core.shapes import Module, Shapes, TransposedKernel, biased, shapes, weight

_LOG = logging.getLogger("tts_core")


class MbdUnetConfig(Config, title="MBD U-Net"):
    """Sizes of one band's U-Net."""

    hidden: int  # channels of the first level
    depth: Count  # levels
    res_blocks: Count  # per level and direction; dilation 2^i in the i-th
    norm_groups: int
    kernel: int  # of the strided convolutions
    stride: int
    growth: float  # channels of the next level, as a factor
    max_channels: int = at(otherwise=10_000)  # the library's default
    codec_dim: int  # width of the codec's latents that condition it

    def faults(self) -> Iterator[str]:
        """Check kernels and channels."""
        if self.stride < 2 or self.kernel < self.stride or (self.kernel - self.stride) % 2:
            yield (
                f"kernel {self.kernel} and stride {self.stride}: the kernel must be the stride plus an even "
                "number, the stride at least 2"
            )
        uneven = [width for width in self.channels if not width or width % self.norm_groups]
        if uneven:
            yield f"{uneven[0]} channels cannot be normalized in {self.norm_groups} groups"

    @property
    def channels(self) -> tuple[int, ...]:
        """Channels of every level, the shallowest first."""
        widths = [self.hidden]
        for _ in range(self.depth - 1):
            widths.append(min(int(widths[-1] * self.growth), self.max_channels))
        return tuple(widths)

    @property
    def padding(self) -> int:
        """Zeros (and outputs cut) at each end of a strided (transposed) convolution."""
        return (self.kernel - self.stride) // 2


class MbdScheduleConfig(Config, title="MBD schedule"):
    """Noise level of a band at each of `num_steps` diffusion steps."""

    beta_t0: float
    beta_t1: float
    beta_exp: float
    num_steps: int
    clip: float  # samples are clipped to ±clip after every transition
    noise_scale: float

    def faults(self) -> Iterator[str]:
        """Check the steps."""
        if self.num_steps < 2 or not self.beta_t0 <= self.beta_t1 < 1:
            yield (
                f"beta {self.beta_t0} to {self.beta_t1} in {self.num_steps} steps: needs two steps or more, "
                "and betas that grow and stay below 1"
            )


def _powers(given: Any, found: Any) -> Any:
    """Give each sub-band the power of all."""
    return tuple(given) if isinstance(given, list | tuple) else (given,) * found["n_bands"]


class MbdProcessorConfig(Config, title="MBD processor"):
    """Rescaling of a sampled band's sub-bands to the level of real audio."""

    n_bands: Count
    power_std: tuple[Signed, ...] = at(convert=_powers)  # one per sub-band

    def faults(self) -> Iterator[str]:
        """Check the number of sub-bands."""
        if self.n_bands < 2 or len(self.power_std) != self.n_bands:
            yield f"{len(self.power_std)} powers for {self.n_bands} bands (at least 2)"


class MbdBandConfig(Config, title="MBD band"):
    """One band. processor: None if the sampled band is used unchanged."""

    unet: MbdUnetConfig = at("cfg.diffusion_unet")
    schedule: MbdScheduleConfig = at("cfg.schedule")
    processor: MbdProcessorConfig | None = at("cfg.processor")


class MbdConfig(Config, title="MBD config"):
    """All bands. Numbers only: no dtype, device or path."""

    sample_rate: int  # Hz
    bands: tuple[MbdBandConfig, ...]

    def faults(self) -> Iterator[str]:
        """Check that there are bands, of equal latents."""
        if not 0 < len(self.bands) <= MOST_LAYERS:
            yield f"{len(self.bands)} bands"
        widths = sorted({band.unet.codec_dim for band in self.bands})
        if len(widths) > 1:
            yield f"the bands expect latents of different widths {widths}"

    @property
    def codec_dim(self) -> int:
        """Width of the codec's latents."""
        return self.bands[0].unet.codec_dim


# Sizes of each published band, inferred from the file's size; the file itself was not available
PUBLISHED_UNET = MbdUnetConfig(
    hidden=48,
    depth=4,
    res_blocks=2,
    norm_groups=4,
    kernel=8,
    stride=4,
    growth=4,
    max_channels=10_000,
    codec_dim=128,
)
_CFG, _UNET, _SCHEDULE, _PROCESSOR = "cfg", "cfg.diffusion_unet", "cfg.schedule", "cfg.processor"
_NEEDED = {f"{_CFG}.channels": 1, f"{_UNET}.emb_all_layers": True}
_FIXED = _NEEDED | {
    f"{_UNET}.bilstm": False,  # parts that the 24 kHz model does not have
    f"{_UNET}.transformer": False,
    f"{_SCHEDULE}.repartition": "power",
    f"{_SCHEDULE}.n_bands": None,
}
_PROCESSED = {f"{_PROCESSOR}.use": True, f"{_PROCESSOR}.name": "multi_band_processor"}
_UNUSED = {
    _UNET: ("dropout", "cross_attention"),  # training; a detail of the transformer
    # rescale: only used if step 0 is executed
    _SCHEDULE: ("variable_step_batch", "variance", "rescale"),
    _PROCESSOR: ("num_samples",),  # training
}


def read_published(content: Mapping[Any, Any]) -> MbdConfig:
    """Read the configuration from `mbd_comp_8.pt`: {"sample_rate", "n_bands", 0: {"cfg": dict, ...}, 1: ...}.

    Sizes other than the published model's are valid and logged.
    Raises CheckpointError for a cfg with missing, unknown or unsupported entries, or at odds with the file.
    """
    rate: Any = mapping(content, "MBD").get("sample_rate")
    count = content.get("n_bands")
    if type(count) is not int or not 0 < count <= MOST_LAYERS:
        raise CheckpointError(f"MBD: n_bands {count!r:.40} is not a number of bands")
    found = [key for key in content if type(key) is int]
    if sorted(found) != list(range(count)):
        raise CheckpointError(f"MBD: n_bands is {count}, the file contains the bands {sorted(found)}")
    config = MbdConfig(rate, tuple(_read_band(content[b], rate, f"MBD band {b}") for b in range(count)))
    for b, band in enumerate(config.bands):
        if band.unet != PUBLISHED_UNET:
            _LOG.info("MBD band %d is not of the published size: %s", b, band.unet)
    return config


def _read_band(content: Any, rate: Any, where: str) -> MbdBandConfig:
    fixed = _FIXED | {f"{_CFG}.sample_rate": rate}
    match content:
        case {"cfg": {"processor": {"use": False}, **cfg}}:
            content, needs = {"cfg": cfg | {"processor": None}}, _NEEDED
        case _:
            fixed, needs = fixed | _PROCESSED, _NEEDED | _PROCESSED
    return MbdBandConfig.read(FileForm(where, unused=_UNUSED, fixed=fixed, needs=needs), content)


def parameter_shapes(config: MbdConfig) -> Shapes:
    """Map canonical names to PyTorch shapes, band after band."""
    return shapes({"bands": [band_parameter_shapes(band) for band in config.bands]})


def band_parameter_shapes(band: MbdBandConfig) -> Shapes:
    """Map names of one band's tensors to PyTorch shapes."""
    unet, widths, steps = band.unet, band.unet.channels, band.schedule.num_steps

    def res_blocks(width: int) -> Module:
        norm, conv = biased(width), biased(width, width, 3)
        return [{"norm1": norm, "conv1": conv, "norm2": norm, "conv2": conv}] * unet.res_blocks

    encoders = [
        {"conv": weight(width, into, unet.kernel), "norm": biased(width), "res_blocks": res_blocks(width)}
        for into, width in zip((1, *widths), widths, strict=False)
    ]
    decoders = [
        {
            "res_blocks": res_blocks(width),
            "norm": biased(width),
            "convtr.weight": TransposedKernel((width, out, unet.kernel)),
        }
        for width, out in zip(widths[::-1], (*widths[-2::-1], 1), strict=True)
    ]
    found: dict[str, Module] = {
        "unet.encoders": encoders,
        "unet.decoders": decoders,
        "unet.embedding": weight(steps, widths[0]),
        "unet.embeddings": [weight(steps, width) for width in widths[1:]],
        "unet.conv_codec": biased(widths[-1], unet.codec_dim, 1),
    }
    if band.processor is not None:
        sums = dict.fromkeys(("sum_x", "sum_x2", "sum_target_x2"), (band.processor.n_bands,))
        found["processor"] = {"counts": (1,), **sums}
    return shapes(found)


def check_fits(config: MbdConfig, codec: EncodecConfig) -> None:
    """Raise CheckpointError unless the bands fit the codec's latents."""
    if (config.codec_dim, config.sample_rate) != (codec.hidden_size, codec.sample_rate):
        raise CheckpointError(
            f"MBD: needs latents of {config.codec_dim} at {config.sample_rate} Hz, the codec has "
            f"{codec.hidden_size} at {codec.sample_rate} Hz"
        )


NETWORK = Network(
    title="MBD (multi-band diffusion)",
    folder="mbd",
    network="codecs.mbd:MultiBandDiffusion",
    parameter_shapes=parameter_shapes,
    read_converted=MbdConfig.from_dict,
    pieces="bands.{}.",
    repository="facebook/multiband-diffusion",
    license="cc-by-nc-4.0",
)


def nearest_frames(length: int, frames: int) -> np.ndarray:
    """Find the frame that conditions each of `length` steps, floor(i frames / length) in float32. → int64.

    Raises ValueError for more than two frames per step, as in upstream.
    """
    if not 0 < frames <= 2 * length:
        raise ValueError(f"mbd: {frames} frames of latents for {length} steps of the deepest level")
    scale = np.float32(frames) / np.float32(length)
    return np.minimum((np.arange(length, dtype=np.float32) * scale).astype(np.int64), frames - 1)


def check_items(
    config: MbdConfig,
    latents: Sequence[tuple[int, ...]],
    references: Sequence[tuple[int, ...]],
    sources: int,
) -> None:
    """Raise UsageError unless each item has latents (C, F), a wave (L,) of fitting length, and noise."""
    if not 0 < len(latents) == len(references) == sources:
        raise UsageError(
            f"mbd: {len(latents)} latents, {len(references)} waves and {sources} sources of noise: give one "
            "of each for every item"
        )
    for latent, wave in zip(latents, references, strict=True):
        if len(latent) != 2 or latent[0] != config.codec_dim or len(wave) != 1 or wave[0] < 2:
            raise UsageError(
                f"mbd: latents {latent} with a wave {wave}: expected ({config.codec_dim}, frames) and "
                "(samples,)"
            )
        for band in config.bands:
            steps = -(-wave[0] // band.unet.stride**band.unet.depth)
            if not 0 < latent[1] <= 2 * steps:
                raise UsageError(f"mbd: {latent[1]} frames of latents do not match {wave[0]} samples")
