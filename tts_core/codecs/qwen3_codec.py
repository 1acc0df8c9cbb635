"""Configuration, tensor names and pieces of Qwen3-TTS's codec: Mimi's encoder, and a decoder of its own.

Source: QwenLM/Qwen3-TTS@022e286 (Apache-2.0); names are the published ones, with the entries of a codebook
computed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any

from tts_core.codecs import mimi
from tts_core.codecs.mimi import MIMI_24KHZ, BookSizes, MimiConfig, quantizer, read_transformers
from tts_core.codecs.policy import CodecPolicy
from tts_core.config import (
    LARGEST,
    MOST_LAYERS,
    SAVED,
    Bounds,
    Config,
    Count,
    FileForm,
    Sizes,
    at,
    heads_faults,
    mapping,
)
from tts_core.errors import CheckpointError
from tts_core.models import Network
from tts_core.nn.windows import Window
from tts_core.shapes import Module, Shapes, attention, biased, shapes, transposed, weight

POLICY = CodecPolicy(max_frames=64, first_frames=2)  # as Mimi's: frames are as long
KERNEL = 7  # of the convolutions around a block's activations
PRE_KERNEL = 3  # of the convolution before the transformer
DILATIONS = (1, 3, 9)  # of a block's residual units
EXPANSION = 4  # of a ConvNeXt block's inner width
NORM_EPS = 1e-6  # of its norm
# The original decodes in pieces of so many frames, each with the frames before it as context
PIECE, CONTEXT = 300, 25


class Qwen3DecoderConfig(Config, title="Qwen3 codec config"):
    """Shape of the decoder. Numbers only: no dtype, device or path."""

    codebook_size: int
    codebook_dim: int  # of the latents; entries are half as wide
    n_codebooks: Count = at("num_quantizers")
    latent_dim: int  # width between transformer and convolutions
    hidden_size: int  # of the transformer
    intermediate_size: int
    num_hidden_layers: Count
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    sliding_window: int  # frames that a frame attends to, itself included
    rope_theta: float
    rms_norm_eps: float
    upsample_rates: Sizes  # of the blocks
    upsampling_ratios: Sizes  # before them
    decoder_dim: int  # channels of the first block

    def faults(self) -> Iterator[str]:
        """Check heads, codebooks and widths."""
        yield from heads_faults(self.num_attention_heads, self.num_key_value_heads, self.head_dim)
        if self.codebook_dim % 2:
            yield f"codebooks of {self.codebook_dim}; give an even width"
        if self.n_codebooks < 2:
            yield "one codebook; some must be acoustic"
        if self.decoder_dim >> len(self.upsample_rates) < 1:
            yield f"{self.decoder_dim} channels cannot be halved {len(self.upsample_rates)} times"

    @property
    def hop_length(self) -> int:
        """Samples per frame."""
        return math.prod((*self.upsample_rates, *self.upsampling_ratios))

    @property
    def books(self) -> BookSizes:
        """Sizes of the quantizer."""
        return BookSizes(self.codebook_dim, self.codebook_dim // 2, self.codebook_size, self.n_codebooks)


class Qwen3CodecConfig(Config, title="Qwen3 codec config"):
    """Shape of both halves. They have codebooks of their own, of equal number and size."""

    encoder: MimiConfig  # decoder's sizes are unused
    decoder: Qwen3DecoderConfig = at("decoder_config")
    # further codebooks of the encoder's checkpoint, which nothing reads
    n_unread: Annotated[int, Bounds(0, MOST_LAYERS)]

    def faults(self) -> Iterator[str]:
        """Check that the halves have equal codes."""
        for name in ("hop_length", "n_codebooks", "codebook_size"):
            first, second = (getattr(half, name) for half in (self.encoder, self.decoder))
            if first != second:
                yield f"{name} {first} and {second} of its halves differ"

    @property
    def sample_rate(self) -> int:
        """Samples per second."""
        return self.encoder.sample_rate

    @property
    def hop_length(self) -> int:
        """Samples per frame."""
        return self.decoder.hop_length

    @property
    def frame_rate(self) -> float:
        """Frames per second, in Hz."""
        return self.sample_rate / self.hop_length

    @property
    def n_codebooks(self) -> int:
        """Codes per frame."""
        return self.decoder.n_codebooks

    @property
    def codebook_size(self) -> int:
        """Entries of a codebook."""
        return self.decoder.codebook_size


_SAVED = ("architectures", *SAVED)
_UNUSED = (
    "attention_dropout",
    "layer_scale_initial_scale",
    "max_position_embeddings",  # not a limit
    "num_semantic_quantizers",  # always 1
    "semantic_codebook_size",
    "vector_quantization_hidden_dimension",
    *_SAVED,
)
_RATES = {
    "input_sample_rate": "sample_rate",
    "output_sample_rate": "sample_rate",
    "encode_downsample_rate": "hop_length",
    "decode_upsample_rate": "hop_length",
}
_ENCODER, _VALID = "encoder_config", "encoder_valid_num_quantizers"
_FILE = FileForm(
    "speech_tokenizer/config.json",
    unused={"": (*_SAVED, _ENCODER, _VALID), "decoder_config": _UNUSED},
    fixed={"decoder_config.hidden_act": "silu", "decoder_config.attention_bias": False},
    equal=_RATES,
    needs=_RATES,
)


def read_published(config: Mapping[str, Any]) -> Qwen3CodecConfig:
    """Read the config.json of a `speech_tokenizer` folder."""
    encoder = read_transformers(
        mapping(mapping(config, _FILE.where).get(_ENCODER), f"{_FILE.where}: {_ENCODER}")
    )
    valid = config.get(_VALID)
    if type(valid) is not int or not encoder.n_semantic < valid <= encoder.n_codebooks:
        raise CheckpointError(f"{_FILE.where}: {_VALID} {valid!r:.40} is no number of codebooks")
    # the original's attention ignores the encoder's window
    half = replace(encoder, n_codebooks=valid, sliding_window=LARGEST)
    return Qwen3CodecConfig.read(_FILE, config, encoder=half, n_unread=encoder.n_codebooks - valid)


def read_converted(config: Mapping[str, Any]) -> Qwen3CodecConfig:
    """Read the published config.json, or our own schema, which older versions wrote."""
    return read_published(config) if "decoder_config" in config else Qwen3CodecConfig.from_dict(config)


ENCODER = ("encoder.", "encoder_transformer.", "downsample.", "quantizer.")  # Mimi's parts that are used


def parameter_shapes(config: Qwen3CodecConfig) -> Shapes:
    """Map canonical names to PyTorch shapes."""
    whole = mimi.parameter_shapes(config.encoder)
    encoder = {name: shape for name, shape in whole.items() if name.startswith(ENCODER)}
    return shapes({"encoder": encoder, "decoder": _decoder(config.decoder)})


def _decoder(config: Qwen3DecoderConfig) -> Module:
    latent, hidden, width = config.latent_dim, config.hidden_size, config.decoder_dim
    layer = {
        "input_layernorm": weight(hidden),
        "self_attn": attention(config),
        "self_attn_layer_scale.scale": (hidden,),
        "post_attention_layernorm": weight(hidden),
        "mlp.gate_proj": weight(config.intermediate_size, hidden),
        "mlp.up_proj": weight(config.intermediate_size, hidden),
        "mlp.down_proj": weight(hidden, config.intermediate_size),
        "mlp_layer_scale.scale": (hidden,),
    }
    convnext = {
        "dwconv.conv": biased(latent, 1, KERNEL),
        "norm": biased(latent),
        "pwconv1": biased(EXPANSION * latent, latent),
        "pwconv2": biased(latent, EXPANSION * latent),
        "gamma": (latent,),
    }
    stages: list[Module] = [{"conv": biased(width, latent, KERNEL)}]
    for rate in config.upsample_rates:
        head = [_snake(width), {"conv": transposed(width, width // 2, 2 * rate)}]
        width //= 2
        unit = {
            "act1": _snake(width),
            "conv1.conv": biased(width, width, KERNEL),
            "act2": _snake(width),
            "conv2.conv": biased(width, width, 1),
        }
        stages.append({"block": [*head, *[unit] * len(DILATIONS)]})
    return {
        "quantizer": quantizer(config.books),
        "pre_conv.conv": biased(latent, config.codebook_dim, PRE_KERNEL),
        "pre_transformer": {
            "layers": [layer] * config.num_hidden_layers,
            "input_proj": biased(hidden, latent),
            "norm": weight(hidden),
            "output_proj": biased(latent, hidden),
        },
        "upsample": [
            [{"conv": transposed(latent, latent, ratio)}, convnext] for ratio in config.upsampling_ratios
        ],
        "decoder": [*stages, _snake(width), {"conv": biased(1, width, KERNEL)}],
    }


def _snake(width: int) -> Module:
    return {"alpha": (width,), "beta": (width,)}


def carried(config: Qwen3DecoderConfig) -> int:
    """Count the numbers that a stream of the decoder carries from one call to the next."""
    keys = config.num_key_value_heads * config.head_dim * (config.sliding_window - 1)
    found = 2 * config.num_hidden_layers * keys + (PRE_KERNEL - 1) * config.codebook_dim
    found += (KERNEL - 1) * config.latent_dim * (len(config.upsampling_ratios) + 1)
    width = config.decoder_dim
    for rate in config.upsample_rates:
        width //= 2
        found += width * (rate + (KERNEL - 1) * sum(DILATIONS))
    return found + (KERNEL - 1) * width


def widest(config: Qwen3DecoderConfig, frames: int) -> int:
    """Count the elements of the largest tensor between the convolutions of the decoder."""
    width, length = config.decoder_dim, frames * math.prod(config.upsampling_ratios)
    sizes = [max(width, EXPANSION * config.latent_dim) * length]
    for rate in config.upsample_rates:
        width, length = width // 2, length * rate
        sizes.append(width * length)
    return max(sizes)


def original_windows(frames: int, size: int = PIECE, context: int = CONTEXT) -> list[Window]:
    """Cut [0, frames) as the original does: every piece is decoded alone, after its context.

    Context is shorter than the convolutions and the transformer read, so that sound after a border differs
    from one that is decoded as a stream.
    """
    starts = range(0, frames, size)
    before = {start: context if start > context else start for start in starts}
    stops = {start: min(start + size, frames) for start in starts}
    return [Window(start, stops[start], start - before[start], stops[start]) for start in starts]


# Published as 12 Hz: the numbers follow from the length of the file, or are those that several ports state
QWEN3_CODEC_12HZ = Qwen3CodecConfig(
    encoder=replace(MIMI_24KHZ, n_codebooks=16, sliding_window=LARGEST),
    decoder=Qwen3DecoderConfig(
        codebook_size=2048,
        codebook_dim=512,
        n_codebooks=16,
        latent_dim=1024,
        hidden_size=512,
        intermediate_size=1024,
        num_hidden_layers=8,
        num_attention_heads=16,
        num_key_value_heads=16,
        head_dim=64,
        sliding_window=72,
        rope_theta=10000.0,
        rms_norm_eps=1e-5,
        upsample_rates=(8, 5, 4, 3),
        upsampling_ratios=(2, 2),
        decoder_dim=1536,
    ),
    n_unread=16,
)

NETWORK = Network(
    title="Qwen3-TTS's codec",
    folder="speech_tokenizer",
    network="codecs.qwen3_codec:Qwen3Codec",
    parameter_shapes=parameter_shapes,
    read_converted=read_converted,
    repository="Qwen/Qwen3-TTS-Tokenizer-12Hz",
    license="apache-2.0",
    optional_documents=("configuration.json", "preprocessor_config.json"),
    published_type="qwen3_tts_tokenizer_12hz",
    is_copied=True,
    older_folder="codec",
)
