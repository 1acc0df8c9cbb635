"""How much memory Dia takes on a backend: weights, caches, activations and the codec, each told in bytes.

Sizes come from the tables that the networks are built from (dia_shapes, dac); what is live at once is counted
in the code of both sides; constants that a library decides are measured by benchmarks/memory.py.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tts_core.codecs import dac
from tts_core.codecs.dac import DacConfig
from tts_core.codecs.policy import CodecPolicy, own
from tts_core.dia.config import DiaConfig, DiaDecoderConfig, DiaEncoderConfig
from tts_core.dia.shapes import is_norm, parameter_shapes
from tts_core.nn.windows import ConvTranspose, Window

BACKENDS: tuple[str, ...] = ("torch-cpu", "torch-cuda", "torch-mps", "mlx-cpu", "mlx-metal", "mlx-cuda")
FIXED = ("torch-cuda",)  # captured steps: caches of fixed size
BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}

CACHE_CHUNK = 256  # rows by which a growing cache grows
CACHE_FIRST = 512  # rows of a fixed cache, doubled when full
SCORES = 256 * 2**20  # tts_core.nn.attention's budget
LOGITS = 10  # copies of a row's logits while candidates are chosen

# Tensors of the codec's widest layer that are live at once. torch: counted in a residual unit; on CUDA the
# workspace of cuDNN is as large as one more (measured). MLX: measured by its allocator on a CPU, with one
# matmul a tap, on a CPU with the native convolutions that Metal runs (not measured there), and on CUDA; it
# allocates ahead of what is computed.
LIVE: dict[str, int] = {
    "torch-cpu": 6,
    "torch-cuda": 7,
    "torch-mps": 6,
    "mlx-cpu": 17,
    "mlx-metal": 24,
    "mlx-cuda": 48,
}
# torch on a CPU: glibc keeps freed blocks below this size, at the codec's peak three times as much as is live
HEAP_BLOCK, HEAP_KEPT = 32 * 2**20, 4
# Beside our own arrays, measured. torch on a CPU: code and modules that load when used, oneDNN's primitives.
# MLX on a CPU: its cache of freed buffers, 32 MB, and code. CUDA: cuBLAS's workspaces, 32 MB for each of the
# two streams that a generation runs on
LIBRARIES: dict[str, int] = {
    "torch-cpu": 112 * 2**20,
    "torch-cuda": 64 * 2**20,
    "torch-mps": 0,
    "mlx-cpu": 48 * 2**20,
    "mlx-metal": 0,
    "mlx-cuda": 64 * 2**20,
}

LARGE = re.compile(r"(\w_proj|logits_dense)\.weight")  # the layers that convert-weights quantises


@dataclass(frozen=True)
class Job:
    """What is to be said, at its longest: bytes of text and codec frames, of each text of a batch."""

    text_bytes: int
    frames: int  # to make
    prompt_frames: int = 0
    batch: int = 1
    guided: bool = True  # unconditional rows run along

    @property
    def streams(self) -> int:
        """Rows that the decoder runs side by side."""
        return self.batch * (2 if self.guided else 1)


class Term(NamedTuple):
    """One line of an estimate."""

    name: str
    bytes: int
    why: str


@dataclass(frozen=True)
class Estimate:
    """Bytes on one backend. What is never there together: prompts (encoded first) and the rest of a run;
    activations and codec.
    """

    backend: str
    weights: Term
    codec_weights: Term
    cache: Term
    source: Term
    activations: Term
    codec: Term
    prompts: Term
    libraries: Term

    @property
    def terms(self) -> tuple[Term, ...]:
        """Every line, in the order of a table; prompts where there are any."""
        run = self.cache, self.source, self.activations, self.codec
        prompts = (self.prompts,) if self.prompts.bytes else ()
        return (self.weights, self.codec_weights, *run, *prompts, self.libraries)

    @property
    def loaded(self) -> int:
        """What stays from loading on."""
        return self.weights.bytes + self.codec_weights.bytes + self.libraries.bytes

    @property
    def running(self) -> int:
        """What a generation adds to that at its peak."""
        rows = self.cache.bytes + self.source.bytes + max(self.activations.bytes, self.codec.bytes)
        return max(self.prompts.bytes, rows)

    @property
    def total(self) -> int:
        """The peak."""
        return self.loaded + self.running


def estimate(
    config: DiaConfig,
    codec: DacConfig,
    job: Job,
    *,
    dtype: str,
    backend: str,
    quantization: Mapping[str, Any] | None = None,
    policy: CodecPolicy | None = None,
) -> Estimate:
    """What `job` takes.

    dtype: of weights and activations (norms and the codec: at least float32).
    quantization: group_size, bits and mode, as config.json has them; torch dequantises when it loads.
    policy: the codec's windows; None takes the backend's own.
    """
    size, wide, policy = BYTES[dtype], max(4, BYTES[dtype]), policy or own(backend)
    quantization = None if backend.startswith("torch") else quantization
    return Estimate(
        backend,
        Term("weights", weight_bytes(config, dtype, quantization), _named(dtype, quantization)),
        Term("codec weights", codec_weight_bytes(codec, wide), f"float{8 * wide}"),
        _cache(config, job, size, backend),
        _source(config, job, size),
        _activations(config, job, size, backend),
        _decoding(codec, job.frames, wide, backend, policy),
        _encoding(codec, job.prompt_frames, wide, backend, policy),
        Term("libraries", LIBRARIES[backend], "workspaces and caches of BLAS and convolutions"),
    )


def _named(dtype: str, quantization: Mapping[str, Any] | None) -> str:
    if quantization is None:
        return f"{dtype}, norms float32"
    bits, group = quantization["bits"], quantization["group_size"]
    return f"{quantization['mode']}, {bits} bits in groups of {group}; the rest {dtype}"


def weight_bytes(config: DiaConfig, dtype: str, quantization: Mapping[str, Any] | None = None) -> int:
    """The network's tensors, and its rotary tables in float32."""
    stored = sum(
        tensor_bytes(name, shape, dtype, quantization) for name, shape in parameter_shapes(config).items()
    )
    encoder, decoder = config.encoder_config, config.decoder_config
    positions = decoder.max_position_embeddings
    tables = encoder.max_position_embeddings * encoder.head_dim + positions * decoder.head_dim
    tables += max(positions, encoder.max_position_embeddings) * decoder.cross_head_dim
    return stored + 4 * tables


def tensor_bytes(
    name: str, shape: tuple[int, ...], dtype: str, quantization: Mapping[str, Any] | None
) -> int:
    """One tensor as it lies in memory, with its scales and biases where it is quantised."""
    elements = math.prod(shape)
    if is_norm(name):
        return max(4, BYTES[dtype]) * elements
    how = (quantization or {}).get(
        name.removesuffix(".weight"), quantization
    )  # a layer's own entry, or all's
    if not how or not LARGE.search(name) or shape[-1] % how["group_size"]:
        return BYTES[dtype] * elements
    per_scale = 2 * BYTES[dtype] if how["mode"] == "affine" else 1
    return elements * how["bits"] // 8 + elements // how["group_size"] * per_scale


def codec_weight_bytes(codec: DacConfig, size: int = 4) -> int:
    """All of the codec's tensors."""
    return size * sum(math.prod(shape) for shape in dac.parameter_shapes(codec).values())


def cache_rows(rows: int, backend: str) -> int:
    """Rows that the self-attention cache has room for once `rows` are in it."""
    if backend not in FIXED:
        return -(-rows // CACHE_CHUNK) * CACHE_CHUNK
    capacity = CACHE_FIRST
    while capacity < rows:
        capacity *= 2
    return capacity


def grid_rows(config: DiaConfig, job: Job) -> int:
    """Rows that the decoder reads: BOS, prompt, frames and the longest delay."""
    return 1 + job.prompt_frames + job.frames + config.longest_delay


def _cache(config: DiaConfig, job: Job, size: int, backend: str) -> Term:
    decoder, rows = config.decoder_config, grid_rows(config, job)
    capacity = cache_rows(rows, backend)
    layer = 2 * job.streams * decoder.num_key_value_heads * decoder.head_dim * size
    held = decoder.num_hidden_layers * layer * capacity
    why = f"keys and values of {rows} rows, room for {capacity}, {job.streams} streams"
    if backend not in FIXED:
        return Term("cache", held + layer // 2 * capacity, f"{why}, one buffer twice while it grows")
    before = max(capacity // 2, -(-(1 + job.prompt_frames) // CACHE_CHUNK) * CACHE_CHUNK)
    return Term("cache", held + layer * before, f"{why}, and one layer's smaller ones, copied from")


def _source(config: DiaConfig, job: Job, size: int) -> Term:
    decoder = config.decoder_config
    width = decoder.cross_num_key_value_heads * decoder.cross_head_dim
    tokens = job.batch * job.text_bytes
    projected = 2 * decoder.num_hidden_layers * tokens * width * size
    encoded = 2 * tokens * config.encoder_config.hidden_size * size
    return Term("text", projected + encoded, f"cross-attention's keys and values of {tokens} bytes")


def _activations(config: DiaConfig, job: Job, size: int, backend: str) -> Term:
    encoder, decoder = config.encoder_config, config.decoder_config
    first, text = 1 + job.prompt_frames, job.text_bytes
    heads = max(decoder.num_attention_heads, decoder.cross_num_attention_heads)
    capacity = cache_rows(grid_rows(config, job), backend)
    read = text * _row(encoder, size) + _scores(encoder.num_attention_heads * text, text)
    start = job.streams * first * _row(decoder, size) + _scores(job.streams * heads * first, max(first, text))
    step = job.streams * _row(decoder, size) + _scores(job.streams * heads, max(capacity, text))
    used, where = max((read, "the text"), (start, f"the first {first} rows"), (step, "a step"))
    logits = LOGITS * 4 * job.streams * decoder.num_channels * decoder.vocab_size
    return Term("activations", used + logits, f"one layer of {where}; logits and their candidates")


def _row(config: DiaEncoderConfig | DiaDecoderConfig, size: int) -> int:
    """What a layer holds at once for one row: in its feed-forward, or in attention with float32 rotations."""
    width, inner = config.hidden_size, config.intermediate_size
    heads = config.num_attention_heads * config.head_dim
    return max(size * (2 * width + 4 * inner), size * (2 * width + 4 * heads) + 3 * 4 * heads)


def _scores(rows: int, keys: int) -> int:
    """Attention's score matrix in float32, twice; over the budget it comes in blocks."""
    return min(SCORES, 2 * 4 * rows * keys)


def codec_windows(codec: DacConfig, *, dtype: str, backend: str, policy: CodecPolicy) -> int:
    """Bytes of the codec's largest windows, encoding or decoding; dtype: of the network beside it."""
    endless, size = 4 * policy.max_frames, max(4, BYTES[dtype])
    return max(one(codec, endless, size, backend, policy).bytes for one in (_decoding, _encoding))


def _decoding(codec: DacConfig, frames: int, size: int, backend: str, policy: CodecPolicy) -> Term:
    fed = _most_fed(codec, frames, dac.decode_window, policy.decode_cuts)
    widest = max(_widths(codec.decoder_hidden_size, codec.hidden_size, dac.decoder_layers(codec), fed))
    return _live("codec", size * widest, f"the decoder's widest layer, {fed} frames", backend)


def _encoding(codec: DacConfig, frames: int, size: int, backend: str, policy: CodecPolicy) -> Term:
    fed = _most_fed(codec, frames, dac.encode_window, policy.even_cuts)
    widest = codec.encoder_hidden_size * fed * codec.hop_length
    return _live("prompts", size * widest, f"the encoder's widest layer, {fed} frames", backend)


def _live(name: str, tensor: int, layer: str, backend: str) -> Term:
    kept = HEAP_KEPT if backend == "torch-cpu" and tensor < HEAP_BLOCK else 1
    return Term(name, kept * LIVE[backend] * tensor, f"{LIVE[backend]} tensors of {layer}")


def _most_fed(
    codec: DacConfig,
    frames: int,
    window: Callable[..., Window],
    cuts: Callable[[int], Iterator[tuple[int, int]]],
) -> int:
    """Frames fed for the largest piece that `frames` are cut into."""
    fed = [window(codec, start, stop, frames) for start, stop in cuts(frames)]
    return max((one.last - one.first for one in fed), default=0)


def _widths(width: int, latent: int, layers: list[dac.Layer], frames: int) -> list[int]:
    """Elements of every tensor between the decoder's layers."""
    sizes, length = [latent * frames, width * frames], frames
    for layer in layers[1:-1]:
        length = layer.output_length(length)
        width //= 2 if isinstance(layer, ConvTranspose) else 1
        sizes.append(width * length)
    return sizes
