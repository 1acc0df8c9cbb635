"""Configuration, tensor names and window geometry of Mimi: the causal mono codec with a transformer per half.

Source: kyutai-labs/moshi@e6a55d2 (MIT); names are those of transformers' MimiModel as published, with the
entries of a codebook computed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from tts_core.codecs.policy import CodecPolicy
from tts_core.config import Config, Count, Strides, at, heads_faults
from tts_core.errors import UsageError
from tts_core.models import Network
from tts_core.nn.windows import Conv, Layer, Window, input_span

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


def check_codebooks(config: MimiConfig, count: int) -> None:
    """Raise UsageError unless `count` is between 1 and the model's number of codebooks."""
    if not 1 <= count <= config.n_codebooks:
        raise UsageError(f"Mimi: {count} codebooks; give 1 to {config.n_codebooks}")


def parameter_shapes(config: MimiConfig) -> dict[str, tuple[int, ...]]:
    """Map canonical names to PyTorch shapes: convolutions (out, in, k), transposed ones (in, out, k)."""
    shapes: dict[str, tuple[int, ...]] = {}

    def conv(name: str, out: int, into: int, kernel: int) -> None:
        shapes[f"{name}.conv.weight"] = (out, into, kernel)
        shapes[f"{name}.conv.bias"] = (out,)

    def residual(at: str, width: int) -> None:
        inner = width // config.compress
        conv(f"{at}.block.1", inner, width, config.residual_kernel_size)
        conv(f"{at}.block.3", width, inner, 1)

    blocks, latent = config.num_residual_layers, config.hidden_size
    width, at = config.num_filters, 1
    conv("encoder.layers.0", width, 1, config.kernel_size)
    for stride in config.upsampling_ratios[::-1]:
        for block in range(blocks):
            residual(f"encoder.layers.{at + block}", width)
        conv(f"encoder.layers.{at + blocks + 1}", 2 * width, width, 2 * stride)
        width, at = 2 * width, at + blocks + 2
    conv(f"encoder.layers.{at + 1}", latent, width, config.last_kernel_size)
    shapes |= _transformer_shapes(config, "encoder_transformer")
    shapes["downsample.conv.weight"] = (latent, latent, 2 * STEPS)

    for half, count in _quantizers(config):
        part = f"quantizer.{half}_residual_vector_quantizer"
        if config.is_projected:
            shapes[f"{part}.input_proj.weight"] = (config.codebook_dim, latent, 1)
        for q in range(count):
            shapes[f"{part}.layers.{q}.codebook.embed"] = (config.codebook_size, config.codebook_dim)
        if config.is_projected:
            shapes[f"{part}.output_proj.weight"] = (latent, config.codebook_dim, 1)

    shapes["upsample.conv.weight"] = (latent, 1, 2 * STEPS)
    shapes |= _transformer_shapes(config, "decoder_transformer")
    conv("decoder.layers.0", width, latent, config.kernel_size)
    for at, stride in zip(transposed_layers(config), config.upsampling_ratios, strict=True):
        shapes[f"decoder.layers.{at}.conv.weight"] = (width, width // 2, 2 * stride)
        shapes[f"decoder.layers.{at}.conv.bias"] = (width // 2,)
        width //= 2
        for block in range(blocks):
            residual(f"decoder.layers.{at + 1 + block}", width)
    last = len(config.upsampling_ratios) * (blocks + 2) + 2
    conv(f"decoder.layers.{last}", 1, width, config.last_kernel_size)
    return shapes


def _transformer_shapes(config: MimiConfig, part: str) -> dict[str, tuple[int, ...]]:
    width, inner = config.hidden_size, config.intermediate_size
    rows = config.num_attention_heads * config.head_dim
    key_rows = config.num_key_value_heads * config.head_dim
    layer = {
        "input_layernorm.weight": (width,),
        "input_layernorm.bias": (width,),
        "self_attn.q_proj.weight": (rows, width),
        "self_attn.k_proj.weight": (key_rows, width),
        "self_attn.v_proj.weight": (key_rows, width),
        "self_attn.o_proj.weight": (width, rows),
        "self_attn_layer_scale.scale": (width,),
        "post_attention_layernorm.weight": (width,),
        "post_attention_layernorm.bias": (width,),
        "mlp.fc1.weight": (inner, width),
        "mlp.fc2.weight": (width, inner),
        "mlp_layer_scale.scale": (width,),
    }
    layers = range(config.num_hidden_layers)
    return {f"{part}.layers.{i}.{name}": shape for i in layers for name, shape in layer.items()}


def _quantizers(config: MimiConfig) -> list[tuple[str, int]]:
    """List the names of both quantizers with their numbers of codebooks."""
    return [("semantic", config.n_semantic), ("acoustic", config.n_codebooks - config.n_semantic)]


def transposed_layers(config: MimiConfig) -> list[int]:
    """List the indices of the transposed convolutions among the decoder's layers."""
    each = config.num_residual_layers + 2
    return [2 + each * i for i in range(len(config.upsampling_ratios))]


def mlx_axes(config: MimiConfig, name: str, rank: int) -> tuple[int, ...] | None:
    """Return the axis order that turns a tensor of `parameter_shapes` into MLX's channels-last layout; None
    if it is the same. Names do not identify transposed convolutions; the configuration does.
    """
    if rank != 3:
        return None
    transposed = {f"decoder.layers.{at}.conv.weight" for at in transposed_layers(config)}
    return (1, 2, 0) if name in transposed else (0, 2, 1)


def _residual_layers(config: MimiConfig) -> list[Layer]:
    kernel = config.residual_kernel_size
    causal = [Conv(kernel, dilation=each, padding=(kernel - 1) * each) for each in config.dilations]
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
    mlx_axes=mlx_axes,
    repository="kyutai/mimi",
    license="cc-by-4.0",
)
