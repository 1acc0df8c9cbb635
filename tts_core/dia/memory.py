"""Memory that Dia needs on a backend: weights, caches, activations and the codec, in bytes.

Sizes come from the tables that the networks are built from (shapes.py, codecs/dac.py). The number of live
tensors is counted in the code of both sides; constants set by a library are measured by benchmarks/memory.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tts_core.codecs import dac
from tts_core.codecs.dac import DacConfig
from tts_core.codecs.dac_calls import most_fed, whole_cuts
from tts_core.codecs.policy import CodecPolicy, fitting, own, smaller
from tts_core.dia.config import DiaConfig, DiaDecoderConfig, DiaEncoderConfig
from tts_core.dia.shapes import is_large, is_norm, parameter_shapes
from tts_core.memory import fits, terms
from tts_core.memory.fits import check_running as check_fits
from tts_core.memory.fits import largest, narrower
from tts_core.memory.terms import (
    BYTES,
    LIVE,
    LOGITS,
    Estimate,
    Phase,
    Term,
    libraries,
    scores,
    stored_as,
)
from tts_core.nn.windows import ConvTranspose, Window
from tts_core.printable import counted

FIXED = ("torch-cuda", "mlx-cpu", "mlx-metal", "mlx-cuda")  # caches of fixed size
CACHE_CHUNK = 256  # rows by which a growing cache grows
# DAC's tensors that are live at once where Snake is one kernel, or NumPy's on a CPU: measured in float32, on
# an H200 (TF32: 7) and on Linux
SNAKE_LIVE = {"torch-cuda": 5, "mlx-cpu": 8}
NOISE_STEPS = 16  # captured steps whose noise is drawn at once


@dataclass(frozen=True)
class Job:
    """An upper bound on a run: bytes of text and codec frames of each text of a batch."""

    text_bytes: int
    frames: int  # to generate
    prompt_frames: int = 0
    batch: int = 1
    guided: bool = True  # unconditional rows run too

    @property
    def streams(self) -> int:
        """Rows that the decoder runs in parallel."""
        return self.batch * (2 if self.guided else 1)

    @staticmethod
    def together(jobs: Sequence[Job]) -> Job:
        """Bound several runs at once, each by the longest."""
        prompt = max(job.prompt_frames for job in jobs)
        return Job(
            text_bytes=max(job.text_bytes for job in jobs),
            frames=max(job.prompt_frames + job.frames for job in jobs) - prompt,
            prompt_frames=prompt,
            batch=sum(job.batch for job in jobs),
            guided=any(job.guided for job in jobs),
        )


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
    """Estimate the memory of `job`.

    dtype: of weights and activations (norms and the codec: at least float32).
    quantization: group_size, bits and mode, as in config.json; torch dequantizes when it loads.
    policy: the codec's windows; None uses the backend's default.
    """
    size, wide, policy = BYTES[dtype], max(4, BYTES[dtype]), policy or own(backend)
    quantization = None if backend.startswith("torch") else quantization
    norms = "" if quantization else ", norms float32"
    weights = weight_bytes(config, dtype, quantization)
    rows = _cache(config, job, size, backend), _source(config, job, size)
    phases = [
        Phase("decoder", (*rows, _activations(config, job, size, backend))),
        Phase("codec", (*rows, _decoding(codec, job.frames, wide, backend, policy, job.batch))),
    ]
    if job.prompt_frames:
        phases.append(Phase("prompts", (_encoding(codec, job.prompt_frames, wide, backend, policy),)))
    return Estimate(
        backend,
        (
            Term("weights", weights, stored_as(dtype, quantization) + norms),
            Term("codec weights", codec_weight_bytes(codec, wide), f"float{8 * wide}"),
            libraries(backend),
        ),
        tuple(phases),
    )


def weight_bytes(config: DiaConfig, dtype: str, quantization: Mapping[str, Any] | None = None) -> int:
    """Count the bytes of the network's tensors, and of its rotary tables in float32."""
    shapes = parameter_shapes(config)
    stored = terms.weight_bytes(shapes, dtype, quantization, stays_float32=is_norm, is_large=is_large)
    encoder, decoder = config.encoder_config, config.decoder_config
    positions = decoder.max_position_embeddings
    tables = encoder.max_position_embeddings * encoder.head_dim + positions * decoder.head_dim
    tables += max(positions, encoder.max_position_embeddings) * decoder.cross_head_dim
    return stored + 4 * tables


def codec_weight_bytes(codec: DacConfig, size: int = 4) -> int:
    """Count the bytes of all tensors of the codec."""
    return size * sum(math.prod(shape) for shape in dac.parameter_shapes(codec).values())


def cache_rows(rows: int, backend: str) -> int:
    """Return the capacity, in rows, of a self-attention cache that holds `rows`."""
    return rows if backend in FIXED else -(-rows // CACHE_CHUNK) * CACHE_CHUNK


def grid_rows(config: DiaConfig, job: Job) -> int:
    """Count the rows that the decoder reads: BOS, prompt, frames and the longest delay."""
    return 1 + job.prompt_frames + job.frames + config.longest_delay


def _cache(config: DiaConfig, job: Job, size: int, backend: str) -> Term:
    decoder, rows = config.decoder_config, grid_rows(config, job)
    capacity = cache_rows(rows, backend)
    layer = 2 * job.streams * decoder.num_key_value_heads * decoder.head_dim * size
    held = decoder.num_hidden_layers * layer * capacity
    why = f"keys and values of {rows} rows, capacity {capacity}, {counted(job.streams, 'stream')}"
    if backend not in FIXED:
        return Term("cache", held + layer // 2 * capacity, f"{why}, two copies of a buffer while it grows")
    first = -(-(1 + job.prompt_frames) // CACHE_CHUNK) * CACHE_CHUNK if job.prompt_frames else 0
    before = decoder.num_hidden_layers * layer // job.batch * first
    return Term("cache", held + before, f"{why}, and one text's while its prompt is read")


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
    read = text * _row(encoder, size) + scores(encoder.num_attention_heads * text, text)
    start = job.streams * first * _row(decoder, size) + scores(job.streams * heads * first, max(first, text))
    step = job.streams * _row(decoder, size) + scores(job.streams * heads, max(capacity, text))
    used, where = max((read, "the text"), (start, f"the first {first} rows"), (step, "a step"))
    logits = LOGITS * 4 * job.streams * decoder.num_channels * decoder.vocab_size
    if backend == "torch-cuda":
        logits += NOISE_STEPS * 4 * job.batch * decoder.num_channels * decoder.vocab_size
    return Term("activations", used + logits, f"one layer of {where}; logits and their candidates")


def _row(config: DiaEncoderConfig | DiaDecoderConfig, size: int) -> int:
    """Bytes live in a layer for one row: in its feed-forward, or in attention with float32 rotations."""
    width, inner = config.hidden_size, config.intermediate_size
    heads = config.num_attention_heads * config.head_dim
    return max(size * (2 * width + 4 * inner), size * (2 * width + 4 * heads) + 3 * 4 * heads)


def codec_windows(codec: DacConfig, *, dtype: str, backend: str, policy: CodecPolicy) -> int:
    """Bytes of the codec's largest windows, encoding or decoding. dtype: of the Dia network."""
    endless, size = 4 * policy.max_frames, max(4, BYTES[dtype])
    return max(one(codec, endless, size, backend, policy).bytes for one in (_decoding, _encoding))


def _decoding(
    codec: DacConfig, frames: int, size: int, backend: str, policy: CodecPolicy, batch: int = 1
) -> Term:
    alone = _most_fed(codec, frames, dac.decode_window, partial(whole_cuts, policy, backend))
    fed = max(alone, min(batch * alone, most_fed(codec, policy, backend=backend)))
    widest = max(_widths(codec.decoder_hidden_size, codec.hidden_size, dac.decoder_layers(codec), fed))
    return _live("codec", size * widest, f"the decoder's widest layer, {fed} frames", backend)


def _encoding(codec: DacConfig, frames: int, size: int, backend: str, policy: CodecPolicy) -> Term:
    fed = _most_fed(codec, frames, dac.encode_window, policy.even_cuts)
    widest = codec.encoder_hidden_size * fed * codec.hop_length
    return _live("prompts", size * widest, f"the encoder's widest layer, {fed} frames", backend)


def _live(name: str, tensor: int, layer: str, backend: str) -> Term:
    live = SNAKE_LIVE.get(backend, LIVE[backend])
    return Term(name, live * tensor, f"{counted(live, 'tensor')} of {layer}")


def _most_fed(
    codec: DacConfig,
    frames: int,
    window: Callable[..., Window],
    cuts: Callable[[int], Iterator[tuple[int, int]]],
) -> int:
    """Count the frames fed for the largest of the windows that `frames` are cut into."""
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


def check_loading(
    config: DiaConfig,
    codec: DacConfig,
    *,
    dtype: str,
    backend: str,
    free: int | None,
    quantization: Mapping[str, Any] | None = None,
) -> None:
    """Raise ResourceError unless the weights fit in `free` bytes. None (unknown) passes."""
    fits.check_loading(
        "the model",
        partial(estimate, config, codec, Job(text_bytes=1, frames=1)),
        dtype=dtype,
        backend=backend,
        free=free,
        quantization=quantization,
        halves=_halves(backend),
    )


def check_running(
    config: DiaConfig,
    codec: DacConfig,
    job: Job,
    *,
    dtype: str,
    backend: str,
    free: int | None,
    policy: CodecPolicy | None = None,
) -> None:
    """Raise ResourceError unless `job` on a loaded model fits in `free` bytes. None (unknown) passes.

    policy: the codec's windows; None uses the backend's default.
    """
    windows = policy or own(backend)

    def takes(job: Job, dtype: str = dtype, policy: CodecPolicy = windows) -> int:
        return estimate(config, codec, job, dtype=dtype, backend=backend, policy=policy).running

    def options(free: int) -> dict[str, int]:
        found = {}
        batch = largest(job.batch - 1, lambda batch: takes(replace(job, batch=batch)) <= free)
        if batch:
            found[f"a batch of {batch}"] = takes(replace(job, batch=batch))
        frames = largest(job.frames - 1, lambda frames: takes(replace(job, frames=frames)) <= free)
        if frames:
            seconds = f"{frames / codec.frame_rate:.1f} s"
            found[f"max_frames {frames}, {seconds}"] = takes(replace(job, frames=frames))
        found |= {f"dtype {name}": takes(job, name) for name in narrower(dtype, _halves(backend))}
        for less in smaller(windows):
            if takes(job, policy=less) <= free:
                found[f"codec windows of {less.max_frames} frames"] = takes(job, policy=less)
                break
        return found

    check_fits(_job_text(job, codec), takes(job), backend=backend, free=free, options=options)


def fitting_batch(
    config: DiaConfig,
    codec: DacConfig,
    job: Job,
    *,
    dtype: str,
    backend: str,
    free: int | None,
    policy: CodecPolicy,
) -> int:
    """Count the texts of a job's batch that fit in `free` bytes together: all if `free` is None, else at
    least one.
    """

    def fits(batch: int) -> bool:
        less = replace(job, batch=batch)
        taken = estimate(config, codec, less, dtype=dtype, backend=backend, policy=policy).running
        return free is None or taken <= free

    return max(1, largest(job.batch, fits))


def codec_policy(codec: DacConfig, *, dtype: str, backend: str, free: int | None) -> CodecPolicy:
    """Choose the largest codec windows, up to the backend's default, that use at most half of `free` bytes.

    dtype: of the Dia network.  free: None (unknown) gives the backend's default.
    """

    def takes(policy: CodecPolicy) -> int:
        return codec_windows(codec, dtype=dtype, backend=backend, policy=policy)

    return fitting(takes, backend, free)


def _job_text(job: Job, codec: DacConfig) -> str:
    texts = "one text" if job.batch == 1 else f"{job.batch} texts"
    return f"{texts} of {job.text_bytes} bytes and {job.frames / codec.frame_rate:.1f} s of speech"


def _halves(backend: str) -> tuple[str, ...]:
    """List the half types to suggest: float16 only on CUDA, where a GPU may lack bfloat16; it overflows."""
    return ("bfloat16", "float16") if backend == "torch-cuda" else ("bfloat16",)
