"""Configuration, tensor names and window geometry of Mimi: the causal mono codec with a transformer per half.

Source: kyutai-labs/moshi@e6a55d2 (MIT); names are those of transformers' MimiModel as published, with the
entries of a codebook computed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tts_core.codecs.policy import CodecPolicy
from tts_core.config import HARMLESS, Config, Count, FileForm, Strides, at, heads_faults
from tts_core.errors import CheckpointError, UsageError
from tts_core.models import Network
from tts_core.nn.windows import Conv, Layer, Window, input_span
from tts_core.shapes import Module, Shapes, attention, biased, shapes, transposed, weight

STEPS = 2  # of the transformers in a frame
# Frames have 1920 samples: 64 of them are as long as 240 of DAC's, and two are the first 0.16 s of a stream
POLICY = CodecPolicy(max_frames=64, first_frames=2)


class MimiConfig(Config, title="Mimi config"):
    """Shape of a Mimi. Numbers only: no dtype, device or path."""

    sample_rate: int = at("sampling_rate")  # Hz
    hidden_size: int  # width of latents and transformers
    num_filters: int  # channels at full rate
    num_residual_layers: Count  # blocks at each rate
    dilation_growth_rate: int  # factor from one block to the next
    upsampling_ratios: Strides  # decoder order
    kernel_size: int
    last_kernel_size: int
    residual_kernel_size: int
    compress: int  # factor by which a residual block is narrower inside
    num_hidden_layers: Count
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    norm_eps: float
    rope_theta: float = at("rope_theta", "rope_parameters.rope_theta")
    sliding_window: int  # steps that a step attends to, itself included
    n_codebooks: Count = at("num_quantizers")
    n_semantic: Count = at("num_semantic_quantizers")  # codebooks of the first quantizer
    codebook_size: int
    codebook_dim: int

    def faults(self) -> Iterator[str]:
        """Check widths, heads and codebooks."""
        if self.compress > self.num_filters:
            yield f"{self.num_filters} channels cannot be narrowed {self.compress} times"
        yield from heads_faults(self.num_attention_heads, self.num_key_value_heads, self.head_dim)
        if self.n_semantic >= self.n_codebooks:
            yield f"{self.n_semantic} of {self.n_codebooks} codebooks are semantic; some must be acoustic"
        if self.dilation_growth_rate ** (self.num_residual_layers - 1) > self.sample_rate:
            yield f"dilations of {self.num_residual_layers} blocks grow over a second"

    @property
    def step_length(self) -> int:
        """Samples per step of the transformers."""
        return math.prod(self.upsampling_ratios)

    @property
    def hop_length(self) -> int:
        """Samples per frame."""
        return STEPS * self.step_length

    @property
    def frame_rate(self) -> float:
        """Frames per second."""
        return self.sample_rate / self.hop_length

    @property
    def width(self) -> int:
        """Channels at the lowest rate of the convolutions."""
        return self.num_filters * 2 ** len(self.upsampling_ratios)

    @property
    def dilations(self) -> tuple[int, ...]:
        """Dilation of each residual block of a rate."""
        return tuple(self.dilation_growth_rate**i for i in range(self.num_residual_layers))

    @property
    def is_projected(self) -> bool:
        """True if the codebooks are narrower than the latents, or wider."""
        return self.codebook_dim != self.hidden_size


@dataclass(frozen=True)
class BookSizes:
    """Shape of a quantizer, by the names of MimiConfig."""

    hidden_size: int  # width of what is quantized
    codebook_dim: int
    codebook_size: int
    n_codebooks: int
    n_semantic: int = 1
    is_projected: bool = True


_FIXED = {  # the only supported values
    "audio_channels": 1,
    "use_causal_conv": True,
    "use_conv_shortcut": False,
    "pad_mode": "constant",
    "trim_right_ratio": 1.0,
    "hidden_act": "gelu",
    "attention_bias": False,
}
_UNUSED = (
    "layer_scale_initial_scale",  # of training
    "max_position_embeddings",  # not a limit: positions are relative
    "tie_word_embeddings",  # nothing to tie
    *("attention_dropout", "use_cache", "use_streaming", "chunk_size_feed_forward", "id2label", "label2id"),
    *("is_encoder_decoder", "problem_type"),
)
_FILE = FileForm(
    "Mimi config.json",
    unused={"": (*HARMLESS, *_UNUSED, "frame_rate", "_frame_rate")},
    fixed=_FIXED | {"normalize": False, "rope_parameters.rope_type": "default"},
    equal={"vector_quantization_hidden_dimension": "codebook_dim", "upsample_groups": "hidden_size"},
    needs=_FIXED,
    support="only the causal mono Mimi is supported",
)


def read_transformers(config: Mapping[str, Any]) -> MimiConfig:
    """Read the configuration from the config.json of a transformers MimiModel, before or since version 5."""
    read = MimiConfig.read(_FILE, config)
    rate, steps = (
        config.get("frame_rate", config.get("_frame_rate")),
        math.ceil(read.sample_rate / read.step_length),
    )
    if rate is None:
        return read
    is_rate = isinstance(rate, int | float) and not isinstance(rate, bool) and rate > 0
    if not is_rate or steps // rate != STEPS:
        raise CheckpointError(f"Mimi config.json: frame_rate {rate!r:.40}, expected {steps / STEPS:g}")
    return read


def check_codebooks(config: MimiConfig, count: int) -> None:
    """Raise UsageError unless `count` is between 1 and the model's number of codebooks."""
    if not 1 <= count <= config.n_codebooks:
        raise UsageError(f"Mimi: {count} codebooks; give 1 to {config.n_codebooks}")


def parameter_shapes(config: MimiConfig) -> Shapes:
    """Map canonical names to PyTorch shapes."""

    def residuals(first: int, width: int) -> dict[str, Module]:
        inner = width // config.compress
        block = {
            "block.1.conv": biased(inner, width, config.residual_kernel_size),
            "block.3.conv": biased(width, inner, 1),
        }
        return {f"{first + i}": block for i in range(blocks)}

    blocks, latent, width = config.num_residual_layers, config.hidden_size, config.num_filters
    encoder: dict[str, Module] = {"0.conv": biased(width, 1, config.kernel_size)}
    for index, stride in zip(transposed_layers(config), config.upsampling_ratios[::-1], strict=True):
        encoder |= residuals(index - 1, width)
        encoder[f"{index + blocks}.conv"] = biased(2 * width, width, 2 * stride)
        width *= 2
    last = transposed_layers(config)[-1] + blocks + 2
    encoder[f"{last}.conv"] = biased(latent, width, config.last_kernel_size)
    decoder: dict[str, Module] = {"0.conv": biased(width, latent, config.kernel_size)}
    for index, stride in zip(transposed_layers(config), config.upsampling_ratios, strict=True):
        decoder[f"{index}.conv"] = transposed(width, width // 2, 2 * stride)
        width //= 2
        decoder |= residuals(index + 1, width)
    decoder[f"{last}.conv"] = biased(1, width, config.last_kernel_size)
    layer = {
        "input_layernorm": biased(latent),
        "self_attn": attention(config),
        "self_attn_layer_scale.scale": (latent,),
        "post_attention_layernorm": biased(latent),
        "mlp.fc1": weight(config.intermediate_size, latent),
        "mlp.fc2": weight(latent, config.intermediate_size),
        "mlp_layer_scale.scale": (latent,),
    }
    layers = [layer] * config.num_hidden_layers
    return shapes(
        {
            "encoder.layers": encoder,
            "encoder_transformer.layers": layers,
            "downsample.conv": weight(latent, latent, 2 * STEPS),
            "quantizer": quantizer(config),
            "upsample.conv": weight(latent, 1, 2 * STEPS),
            "decoder_transformer.layers": layers,
            "decoder.layers": decoder,
        }
    )


def quantizer(sizes: BookSizes | MimiConfig) -> dict[str, Module]:
    """Build the quantizer: semantic books, and acoustic ones."""
    found, width, dim = dict[str, Module](), sizes.hidden_size, sizes.codebook_dim
    for half, count in (("semantic", sizes.n_semantic), ("acoustic", sizes.n_codebooks - sizes.n_semantic)):
        books = {"layers": [{"codebook.embed": (sizes.codebook_size, dim)}] * count}
        if sizes.is_projected:
            ends = weight(dim, width, 1), weight(width, dim, 1)
            books = {"input_proj": ends[0], **books, "output_proj": ends[1]}
        found[f"{half}_residual_vector_quantizer"] = books
    return found


def transposed_layers(config: MimiConfig) -> list[int]:
    """List the indices of the transposed convolutions among the decoder's layers."""
    stride_layers = config.num_residual_layers + 2
    return [2 + stride_layers * i for i in range(len(config.upsampling_ratios))]


def _residual_layers(config: MimiConfig) -> list[Layer]:
    kernel = config.residual_kernel_size
    causal = [
        Conv(kernel, dilation=dilation, padding=(kernel - 1) * dilation) for dilation in config.dilations
    ]
    return [layer for first in causal for layer in (first, Conv(1))]


def _encoder_layers(config: MimiConfig) -> list[Layer]:
    """List the causal convolutions from samples to steps."""
    layers: list[Layer] = [Conv(config.kernel_size, padding=config.kernel_size - 1)]
    for stride in config.upsampling_ratios[::-1]:
        layers += [*_residual_layers(config), Conv(2 * stride, stride, padding=stride)]
    return [*layers, Conv(config.last_kernel_size, padding=config.last_kernel_size - 1)]


def carried(config: MimiConfig) -> int:
    """Count the numbers that a stream of the decoder carries from one call to the next."""
    keys = config.num_key_value_heads * config.head_dim * (config.sliding_window - 1)
    found = 2 * config.num_hidden_layers * keys + config.hidden_size * config.kernel_size
    width = config.width
    for stride in config.upsampling_ratios:
        width //= 2
        found += width * (stride + (config.residual_kernel_size - 1) * sum(config.dilations))
    return found + (config.last_kernel_size - 1) * width


def widest(config: MimiConfig, frames: int) -> int:
    """Count the elements of the largest tensor between the convolutions: the same in both directions."""
    width, length = config.width, STEPS * frames
    sizes = [max(width, config.hidden_size) * length]
    for stride in config.upsampling_ratios:
        width, length = width // 2, length * stride
        sizes.append(width * length)
    return max(sizes)


def encode_windows(config: MimiConfig, frames: int, largest: int) -> list[Window]:
    """Cut an encode into windows of frames; samples from `first` on feed the encoder's convolutions."""
    before = -(input_span(_encoder_layers(config), 0, STEPS)[0] // config.hop_length)
    cuts = [(start, min(start + largest, frames)) for start in range(0, frames, largest)]
    return [Window(start, stop, max(0, start - before), stop) for start, stop in cuts]


# kyutai/mimi
MIMI_24KHZ = MimiConfig(
    sample_rate=24000,
    hidden_size=512,
    num_filters=64,
    num_residual_layers=1,
    dilation_growth_rate=2,
    upsampling_ratios=(8, 6, 5, 4),
    kernel_size=7,
    last_kernel_size=3,
    residual_kernel_size=3,
    compress=2,
    num_hidden_layers=8,
    intermediate_size=2048,
    num_attention_heads=8,
    num_key_value_heads=8,
    head_dim=64,
    norm_eps=1e-5,
    rope_theta=10000.0,
    sliding_window=250,
    n_codebooks=32,
    n_semantic=1,
    codebook_size=2048,
    codebook_dim=256,
)

NETWORK = Network(
    title="Mimi (the codec)",
    folder="codec",
    network="codecs.mimi:Mimi",
    parameter_shapes=parameter_shapes,
    read_converted=MimiConfig.from_dict,
    repository="kyutai/mimi",
    license="cc-by-4.0",
)
