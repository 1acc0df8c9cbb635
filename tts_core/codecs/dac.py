"""Configuration, tensor names and window geometry of the Descript Audio Codec.

Source: descriptinc/descript-audio-codec 1.0.0 (MIT); names are those of transformers' DacModel.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from tts_core.config import HARMLESS, Config, Count, FileForm, Sizes, Strides, at
from tts_core.errors import CheckpointError
from tts_core.models import Network
from tts_core.nn.windows import Conv, ConvTranspose, Layer, Window, input_span, output_length
from tts_core.shapes import Module, Shapes, biased, shapes, transposed, weight

DILATIONS = (1, 3, 9)  # of a block's three residual units


def _widths(given: Any, found: Any) -> Any:
    """Give each codebook the width of all."""
    return (given,) * found["n_codebooks"] if isinstance(given, int) else tuple(given)


class DacConfig(Config, title="DAC config"):
    """Shape of a DAC. Numbers only: no dtype, device or path."""

    sample_rate: int = at("sampling_rate", descript="sample_rate")  # Hz
    encoder_hidden_size: int = at(descript="encoder_dim")
    downsampling_ratios: Strides = at(descript="encoder_rates")  # encoder order
    hidden_size: int = at(  # latent width
        otherwise=lambda found: found["encoder_hidden_size"] << len(found["downsampling_ratios"]),
        descript="latent_dim",
    )
    decoder_hidden_size: int = at(descript="decoder_dim")
    upsampling_ratios: Strides = at(  # decoder order
        otherwise=lambda found: found["downsampling_ratios"][::-1], descript="decoder_rates"
    )
    n_codebooks: Count
    codebook_size: int
    codebook_dim: Sizes = at(convert=_widths)  # one per codebook

    def faults(self) -> Iterator[str]:
        """Check strides and widths."""
        downs, ups = self.downsampling_ratios, self.upsampling_ratios
        if len(self.codebook_dim) != self.n_codebooks:
            yield f"{len(self.codebook_dim)} widths for {self.n_codebooks} codebooks"
        if math.prod(downs) != math.prod(ups):
            yield f"strides {downs} and {ups} do not match"
        if self.decoder_hidden_size % 2 ** len(ups):
            yield f"decoder width {self.decoder_hidden_size} cannot be halved in every block"

    @property
    def hop_length(self) -> int:
        """Samples per frame."""
        return math.prod(self.downsampling_ratios)

    @property
    def frame_rate(self) -> float:
        """Frames per second."""
        return self.sample_rate / self.hop_length

    @property
    def encoder_width(self) -> int:
        """Output channels of the encoder's last block."""
        return self.encoder_hidden_size * 2 ** len(self.downsampling_ratios)


_DESCRIPT = FileForm("DAC metadata", name="descript", needs=["decoder_rates"])
_TRANSFORMERS = FileForm(
    "DAC config.json",
    unused={
        "": (*HARMLESS, "hop_length", "quantizer_dropout", "commitment_loss_weight", "codebook_loss_weight")
    },
    support="this DAC variant is not supported",
)


def read_descript(kwargs: Mapping[str, Any]) -> DacConfig:
    """Read the configuration from the `metadata.kwargs` of a descript checkpoint.

    Unknown entries are dropped, as in its own loader.
    """
    return DacConfig.read(_DESCRIPT, kwargs)


def read_transformers(config: Mapping[str, Any]) -> DacConfig:
    """Read the configuration from the config.json of a transformers DacModel."""
    return DacConfig.read(_TRANSFORMERS, config)


def parameter_shapes(config: DacConfig) -> Shapes:
    """Map canonical names to PyTorch shapes."""

    def units(width: int) -> dict[str, Module]:
        unit = {
            "snake1": _snake(width),
            "conv1": biased(width, width, 7),
            "snake2": _snake(width),
            "conv2": biased(width, width, 1),
        }
        return {f"res_unit{number}": unit for number in range(1, len(DILATIONS) + 1)}

    widths = [config.encoder_hidden_size << i for i in range(len(config.downsampling_ratios))]
    outs = [config.decoder_hidden_size >> i for i in range(1, len(config.upsampling_ratios) + 1)]
    latent, narrow = config.hidden_size, outs[-1]
    down = [
        {**units(width), "snake1": _snake(width), "conv1": biased(2 * width, width, 2 * stride)}
        for width, stride in zip(widths, config.downsampling_ratios, strict=True)
    ]
    up = [
        {"snake1": _snake(2 * out), "conv_t1": transposed(2 * out, out, 2 * stride), **units(out)}
        for out, stride in zip(outs, config.upsampling_ratios, strict=True)
    ]
    books = [
        {
            "in_proj": biased(dim, latent, 1),
            "out_proj": biased(latent, dim, 1),
            "codebook": weight(config.codebook_size, dim),
        }
        for dim in config.codebook_dim
    ]
    return shapes(
        {
            "encoder.conv1": biased(widths[0], 1, 7),
            "encoder.block": down,
            "encoder.snake1": _snake(config.encoder_width),
            "encoder.conv2": biased(latent, config.encoder_width, 3),
            "quantizer.quantizers": books,
            "decoder.conv1": biased(config.decoder_hidden_size, latent, 7),
            "decoder.block": up,
            "decoder.snake1": _snake(narrow),
            "decoder.conv2": biased(1, narrow, 7),
        }
    )


def _snake(width: int) -> Module:
    return {"alpha": (1, width, 1)}


def check_fits(config: DacConfig, channels: int, entries: int) -> None:
    """Raise CheckpointError unless the codec has one codebook of `entries` codes for each of `channels`."""
    if (config.n_codebooks, config.codebook_size) != (channels, entries):
        raise CheckpointError(
            f"codec: {config.n_codebooks} codebooks of {config.codebook_size} codes, the model needs "
            f"{channels} codebooks of {entries}; use the codec of its release"
        )


def _residual_layers() -> list[Layer]:
    return [layer for d in DILATIONS for layer in (Conv(7, dilation=d, padding=3 * d), Conv(1))]


def encoder_layers(config: DacConfig) -> list[Layer]:
    """List the convolutions from samples to latents."""
    layers: list[Layer] = [Conv(7, padding=3)]
    for stride in config.downsampling_ratios:
        layers += [*_residual_layers(), Conv(2 * stride, stride, padding=math.ceil(stride / 2))]
    return [*layers, Conv(3, padding=1)]


@cache
def decoder_layers(config: DacConfig) -> Sequence[Layer]:
    """List the convolutions from latents to samples."""
    layers: list[Layer] = [Conv(7, padding=3)]
    for stride in config.upsampling_ratios:
        layers += [ConvTranspose(2 * stride, stride, math.ceil(stride / 2)), *_residual_layers()]
    return [*layers, Conv(7, padding=3)]


def decoded_length(config: DacConfig, frames: int) -> int:
    """Count the samples of `frames` frames; an odd stride loses one sample in its layer."""
    return output_length(decoder_layers(config), frames)


def decode_window(config: DacConfig, start: int, stop: int, frames: int) -> Window:
    """Find the frames to feed for the samples of frames [start, stop) out of `frames`."""
    first, last = _span(config, stop - start)
    return Window(start, stop, max(0, start + first), min(frames, start + last))


@cache
def _span(config: DacConfig, frames: int) -> tuple[int, int]:
    """Find the frames to feed for the samples of frames [0, `frames`); others are moved by whole frames."""
    return input_span(decoder_layers(config), 0, frames * config.hop_length)


def decode_lookahead(config: DacConfig) -> int:
    """Count the frames after the last wanted one that must be known before its samples are final."""
    return input_span(decoder_layers(config), 0, config.hop_length)[1] - 1


def delay(config: DacConfig) -> int:
    """Count the samples by which a stream that computes each frame once is late."""
    late = 0
    for layer in decoder_layers(config):
        late = late * (layer.stride if isinstance(layer, ConvTranspose) else 1) + layer.padding
    return late


def carried(config: DacConfig) -> int:
    """Count the numbers that a stream of the decoder carries from one call to the next."""
    found, width = 6 * config.hidden_size, config.decoder_hidden_size
    for stride in config.upsampling_ratios:
        width //= 2
        found += width * (stride + 9 * sum(DILATIONS))  # of a unit 6 inputs and 3 of its skip, dilated
    return found + 6 * width


def encode_window(config: DacConfig, start: int, stop: int, frames: int) -> Window:
    """Find the samples to feed for frames [start, stop), in units of frames; whole hops keep the strides
    aligned.
    """
    first, last = input_span(encoder_layers(config), start, stop)
    hop = config.hop_length
    return Window(start, stop, max(0, first // hop), min(frames, -(-last // hop)))


# config.json of descript/dac_44khz
DAC_44KHZ = DacConfig(
    sample_rate=44100,
    encoder_hidden_size=64,
    downsampling_ratios=(2, 4, 8, 8),
    hidden_size=1024,
    decoder_hidden_size=1536,
    upsampling_ratios=(8, 8, 4, 2),
    n_codebooks=9,
    codebook_size=1024,
    codebook_dim=(8,) * 9,
)

NETWORK = Network(
    title="DAC (the codec)",
    folder="codec",
    network="codecs.dac:Dac",
    parameter_shapes=parameter_shapes,
    read_converted=DacConfig.from_dict,
    repository="descript/dac_44khz",
)
