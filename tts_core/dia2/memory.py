"""Memory that Dia2 needs on a backend: weights, caches, activations and the codec, in bytes.

Sizes come from the tables that the networks are built from (shapes.py, codecs/mimi.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tts_core.codecs import mimi
from tts_core.codecs.mimi import STEPS, MimiConfig
from tts_core.codecs.policy import CodecPolicy
from tts_core.config import Configs, config_of
from tts_core.dia2.config import Dia2Config, StackConfig
from tts_core.dia2.shapes import is_large, is_norm, parameter_shapes
from tts_core.memory import fits, terms
from tts_core.memory.fits import halves_of, largest, narrower
from tts_core.memory.terms import BYTES, LIVE, LOGITS, Estimate, Phase, Term, libraries, scores, stored_as
from tts_core.printable import counted

CACHE_CHUNK = 256  # rows by which a cache grows
FIXED = ("torch-cuda",)  # backends whose caches are allocated at once


@dataclass(frozen=True)
class Dia2Job:
    """An upper bound on runs that share steps. frames: of speech, without the prefix.  guided: unconditional
    rows run too.  texts: runs.
    """

    frames: int
    prefix_frames: int = 0
    guided: bool = True
    texts: int = 1

    @classmethod
    def together(cls, jobs: Sequence[Dia2Job]) -> Dia2Job:
        """Bound runs that share steps."""
        return cls(
            max(job.frames for job in jobs),
            max(job.prefix_frames for job in jobs),
            any(job.guided for job in jobs),
            sum(job.texts for job in jobs),
        )

    @property
    def rows(self) -> int:
        """Rows of the transformer."""
        return self.texts * (1 + self.guided)


def estimate(
    configs: Configs,
    job: Dia2Job,
    *,
    dtype: str,
    backend: str,
    quantization: Mapping[str, Any] | None = None,
    policy: CodecPolicy = mimi.POLICY,
) -> Estimate:
    """Estimate the memory of `job`.

    configs: of the model's parts by kind.
    dtype: of weights and activations (norms and the codec: at least float32).
    quantization: as in config.json; torch dequantizes when it loads.
    policy: the codec's windows.
    """
    config, codec = config_of(configs, "dia2", Dia2Config), config_of(configs, "mimi", MimiConfig)
    size, wide = BYTES[dtype], max(4, BYTES[dtype])
    quantization = None if backend.startswith("torch") else quantization
    cache = _cache(config, job, size)
    phases = [
        Phase("steps", (cache, _activations(config, job, size))),
        Phase("codec", (cache, *_decoding(codec, job, wide, backend, policy))),
    ]
    if job.prefix_frames:
        phases.insert(0, Phase("prefix", (_encoding(codec, job, wide, backend, policy),)))
    return Estimate(
        backend,
        (
            Term(
                "weights",
                weight_bytes(config, dtype, quantization),
                stored_as(dtype, quantization) + ("" if quantization else ", norms float32"),
            ),
            Term("codec weights", codec_weight_bytes(codec, wide), f"float{8 * wide}"),
            libraries(backend),
        ),
        tuple(phases),
    )


def weight_bytes(config: Dia2Config, dtype: str, quantization: Mapping[str, Any] | None = None) -> int:
    """Count the bytes of both networks' tensors, and of their rotary tables in float32."""
    stored = terms.weight_bytes(
        parameter_shapes(config), dtype, quantization, stays_float32=is_norm, is_large=is_large
    )
    positions = 2 * config.max_context_steps + 1
    stages = config.n_streams - 1 if config.depformer_has_rope else 0
    return stored + 4 * (positions * config.transformer.head_dim + stages * config.depformer.head_dim)


def codec_weight_bytes(codec: MimiConfig, size: int = 4) -> int:
    """Count the bytes of all tensors of the codec."""
    return size * sum(math.prod(shape) for shape in mimi.parameter_shapes(codec).values())


def cached_rows(config: Dia2Config, job: Dia2Job) -> int:
    """Count the steps that a run reads: the prefix, and all but the last column of the speech."""
    return job.prefix_frames + min(config.max_context_steps, job.frames + config.longest_delay - 1)


def _cache(config: Dia2Config, job: Dia2Job, size: int) -> Term:
    stack, steps = config.transformer, cached_rows(config, job)
    capacity = -(-steps // CACHE_CHUNK) * CACHE_CHUNK
    layer = 2 * job.rows * stack.num_key_value_heads * stack.head_dim * size * capacity
    rows = counted(job.rows, "row")
    why = f"keys and values of {steps} steps, capacity {capacity}, {rows}; a layer's while it grows"
    return Term("cache", (stack.num_hidden_layers + 1) * layer, why)


def _activations(config: Dia2Config, job: Dia2Job, size: int) -> Term:
    stack = config.transformer
    most = max(job.rows, (1 + job.guided) * job.prefix_frames)  # prefixes are read one by one
    read = most * _row(stack, size) + scores(most * stack.num_attention_heads, cached_rows(config, job))
    logits = LOGITS * 4 * job.rows * config.audio_vocab_size
    return Term(
        "activations", read + logits, f"one layer of {counted(most, 'row')}; logits and their candidates"
    )


def _row(stack: StackConfig, size: int) -> int:
    """Bytes live in a layer for one step: in its feed-forward, or in attention with float32 rotations."""
    heads = stack.num_attention_heads * stack.head_dim
    inner = size * (2 * stack.hidden_size + 4 * stack.intermediate_size)
    return max(inner, size * (2 * stack.hidden_size + 4 * heads) + 3 * 4 * heads)


def _decoding(
    codec: MimiConfig, job: Dia2Job, size: int, backend: str, policy: CodecPolicy
) -> tuple[Term, ...]:
    fed = min(job.frames, policy.max_frames) + -(-mimi.decode_tail(codec) // STEPS)
    steps = STEPS * min(job.frames, policy.max_frames)
    return (
        _live("codec", size * mimi.widest(codec, fed), fed, backend),
        Term(
            "codec state", job.texts * _kept(codec, steps, size), "keys and values of the codec's transformer"
        ),
    )


def _encoding(codec: MimiConfig, job: Dia2Job, size: int, backend: str, policy: CodecPolicy) -> Term:
    most = min(job.prefix_frames, policy.max_frames)
    [*_, last] = mimi.encode_windows(codec, 3 * most, most)
    fed = min(job.prefix_frames, last.stop - last.first)
    return _live("recordings", size * mimi.widest(codec, fed), fed, backend)


def _live(name: str, tensor: int, frames: int, backend: str) -> Term:
    live = LIVE[backend]
    return Term(
        name, live * tensor, f"{counted(live, 'tensor')} of the codec's widest layer, {frames} frames"
    )


def _kept(codec: MimiConfig, steps: int, size: int) -> int:
    """Bytes of a stream's keys and values, twice while they are joined with new ones."""
    rows = codec.num_key_value_heads * codec.head_dim
    window = codec.sliding_window - 1
    return 2 * size * rows * (codec.num_hidden_layers * (window + steps) + window + steps)


def check_loading(
    configs: Configs,
    *,
    dtype: str,
    backend: str,
    free: int | None,
    quantization: Mapping[str, Any] | None = None,
) -> None:
    """Raise ResourceError, naming what fits, unless the weights fit in `free` bytes. None passes."""
    fits.check_loading(
        "the model",
        partial(estimate, configs, Dia2Job(frames=1)),
        dtype=dtype,
        backend=backend,
        free=free,
        quantization=quantization,
    )


def check_running(
    configs: Configs, job: Dia2Job, *, dtype: str, backend: str, free: int | None, policy: CodecPolicy
) -> None:
    """Raise ResourceError, naming what would fit, unless `job` on a loaded model fits in `free` bytes.

    None (unknown) passes.
    """

    def takes(job: Dia2Job, dtype: str = dtype) -> int:
        return estimate(configs, job, dtype=dtype, backend=backend, policy=policy).running

    def options(free: int) -> dict[str, int]:
        found: dict[str, int] = {}
        frames = largest(job.frames - 1, lambda frames: takes(replace(job, frames=frames)) <= free)
        if frames:
            found[f"max_frames {frames}"] = takes(replace(job, frames=frames))
        found |= {f"dtype {name}": takes(job, name) for name in narrower(dtype, halves_of(backend))}
        if job.guided:
            found["cfg_scale 1"] = takes(replace(job, guided=False))
        return found

    seconds = job.frames / config_of(configs, "mimi", MimiConfig).frame_rate
    what = f"{seconds:.1f} s of speech"
    fits.check_running(what, takes(job), backend=backend, free=free, options=options)
