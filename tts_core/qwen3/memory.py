"""Memory that Qwen3-TTS needs on a backend: weights, caches, activations and the codec, in bytes.

Sizes come from the tables that the networks are built from (config.py, codecs/qwen3_codec.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tts_core.codecs import mimi, qwen3_codec
from tts_core.codecs.policy import CodecPolicy
from tts_core.codecs.qwen3_codec import Qwen3CodecConfig
from tts_core.config import Configs, config_of
from tts_core.memory import fits, terms
from tts_core.memory.fits import halves_of, largest, narrower
from tts_core.memory.terms import BYTES, LIVE, LOGITS, Estimate, Phase, Term, libraries, scores, stored_as
from tts_core.printable import counted
from tts_core.qwen3.config import Qwen3Config, StackConfig, is_large, parameter_shapes, stays_float32
from tts_core.qwen3.speaker import HOP, SpeakerConfig

CACHE_CHUNK = 256  # positions by which a cache grows
# Live tensors of the codec's widest layer; on a CPU with MLX measured, elsewhere those of other codecs
CODEC_LIVE = LIVE | {"mlx-cpu": 6}


@dataclass(frozen=True)
class Qwen3Job:
    """An upper bound on texts that share steps.

    frames: of speech.  prompt: positions that are read before it, those of a recording among them.
    recording: frames of a recording, which is encoded, and with its transcript decoded before the speech.
    """

    frames: int
    prompt: int = 64
    recording: int = 0
    texts: int = 1

    @classmethod
    def together(cls, jobs: Sequence[Qwen3Job]) -> Qwen3Job:
        """Bound texts that share steps."""
        return cls(
            max(job.frames for job in jobs),
            max(job.prompt for job in jobs),
            max(job.recording for job in jobs),
            sum(job.texts for job in jobs),
        )

    @property
    def positions(self) -> int:
        """Positions of a text that are cached: all but the last frame."""
        return self.prompt + self.frames - 1


def estimate(
    configs: Configs,
    job: Qwen3Job,
    *,
    dtype: str,
    backend: str,
    quantization: Mapping[str, Any] | None = None,
    policy: CodecPolicy = qwen3_codec.POLICY,
) -> Estimate:
    """Estimate the memory of `job`.

    configs: of the model's parts by kind.  dtype: of weights and activations (norms, the codec and the
    speaker encoder: at least float32).  quantization: as in config.json; torch dequantizes when it loads.
    policy: the codec's windows.
    """
    config = config_of(configs, "qwen3", Qwen3Config)
    codec = config_of(configs, "qwen3_codec", Qwen3CodecConfig)
    size, wide = BYTES[dtype], max(4, BYTES[dtype])
    quantization = None if backend.startswith("torch") else quantization
    cache = _cache(config, job, size)
    phases = [
        Phase("prompt", (cache, _prompt(config, job, size))),
        Phase("steps", (cache, _steps(config, job, size))),
        Phase("codec", (cache, *_decoding(codec, job, wide, backend, policy))),
    ]
    if job.recording:
        phases.insert(0, Phase("recording", (_encoding(config, codec, job, wide, backend, policy),)))
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


def weight_bytes(config: Qwen3Config, dtype: str, quantization: Mapping[str, Any] | None = None) -> int:
    """Count the bytes of all networks' tensors, and of their rotary tables in float32."""
    stored = terms.weight_bytes(
        parameter_shapes(config), dtype, quantization, stays_float32=stays_float32, is_large=is_large
    )
    tables = config.max_positions * config.talker.head_dim + config.n_codebooks * config.predictor.head_dim
    return stored + 4 * tables


def codec_weight_bytes(codec: Qwen3CodecConfig, size: int = 4) -> int:
    """Count the bytes of all tensors of the codec."""
    return size * sum(math.prod(shape) for shape in qwen3_codec.parameter_shapes(codec).values())


def _cache(config: Qwen3Config, job: Qwen3Job, size: int) -> Term:
    stack = config.talker
    capacity = -(-job.positions // CACHE_CHUNK) * CACHE_CHUNK
    layer = 2 * job.texts * stack.num_key_value_heads * stack.head_dim * size * capacity
    rows = counted(job.texts, "row")
    why = (
        f"keys and values of {job.positions} positions, capacity {capacity}, {rows}; a layer's while it grows"
    )
    return Term("cache", (stack.num_hidden_layers + 1) * layer, why)


def _prompt(config: Qwen3Config, job: Qwen3Job, size: int) -> Term:
    """One prompt after the other is read."""
    stack = config.talker
    read = job.prompt * (_row(stack, size) + 3 * size * config.text_hidden_size)
    return Term(
        "prompt",
        read + scores(job.prompt * stack.num_attention_heads, job.prompt),
        f"one layer of {counted(job.prompt, 'position')}, and embeddings of text",
    )


def _steps(config: Qwen3Config, job: Qwen3Job, size: int) -> Term:
    stack, other = config.talker, config.predictor
    rows = job.texts * max(_row(stack, size), _row(other, size))
    rows += scores(job.texts * stack.num_attention_heads, job.positions)
    predicted = 2 * size * other.num_key_value_heads * other.head_dim * config.n_codebooks
    draws = config.vocab_size + (config.n_codebooks - 1) * config.codebook_size
    kept = job.texts * (other.num_hidden_layers * predicted + 4 * draws + LOGITS * 4 * config.vocab_size)
    return Term(
        "activations",
        rows + kept,
        f"one layer of {counted(job.texts, 'row')}; logits, their candidates, noise",
    )


def _row(stack: StackConfig, size: int) -> int:
    """Bytes live in a layer for one position: in its feed-forward, or in attention with float32 rotations."""
    heads = stack.num_attention_heads * stack.head_dim
    inner = size * (2 * stack.hidden_size + 4 * stack.intermediate_size)
    return max(inner, size * (2 * stack.hidden_size + 4 * heads) + 3 * 4 * heads)


def _decoding(
    codec: Qwen3CodecConfig, job: Qwen3Job, size: int, backend: str, policy: CodecPolicy
) -> tuple[Term, ...]:
    read = min(job.recording + job.frames, policy.max_frames)
    fed = read + qwen3_codec.decode_tail(codec.decoder)
    return (
        _live("codec", size * qwen3_codec.widest(codec.decoder, fed), fed, backend),
        Term(
            "codec state",
            job.texts * _kept(codec, read, size),
            "keys and values of the codec's transformer, and its last frames",
        ),
    )


def _kept(codec: Qwen3CodecConfig, frames: int, size: int) -> int:
    """Bytes of a stream's state; keys and values twice while they are joined with new ones."""
    sizes, window = codec.decoder, codec.decoder.sliding_window - 1
    rows = sizes.num_key_value_heads * sizes.head_dim
    keys = 2 * size * rows * (sizes.num_hidden_layers * (window + frames) + window + frames)
    return keys + size * sizes.latent_dim * (qwen3_codec.decode_tail(sizes) + frames)


def _encoding(
    config: Qwen3Config, codec: Qwen3CodecConfig, job: Qwen3Job, size: int, backend: str, policy: CodecPolicy
) -> Term:
    most = min(job.recording, policy.max_frames)
    [*_, last] = mimi.encode_windows(codec.encoder, 3 * most, most)
    fed = min(job.recording, last.stop - last.first)
    heard = size * mimi.widest(codec.encoder, fed)
    if config.speaker_encoder is not None:
        seconds = job.recording / codec.frame_rate
        heard = max(heard, _speaker(config.speaker_encoder, seconds, size))
    return _live("recordings", heard, fed, backend)


def _speaker(config: SpeakerConfig, seconds: float, size: int) -> int:
    """Bytes of the largest tensor of the speaker encoder: the last blocks' sum with mean and deviation."""
    return size * 3 * config.enc_channels[-1] * math.ceil(seconds * config.sample_rate / HOP)


def _live(name: str, tensor: int, frames: int, backend: str) -> Term:
    live = CODEC_LIVE[backend]
    return Term(name, live * tensor, f"{counted(live, 'tensor')} of the widest layer, {frames} frames")


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
        partial(estimate, configs, Qwen3Job(frames=1)),
        dtype=dtype,
        backend=backend,
        free=free,
        quantization=quantization,
    )


def check_running(
    configs: Configs, job: Qwen3Job, *, dtype: str, backend: str, free: int | None, policy: CodecPolicy
) -> None:
    """Raise ResourceError, naming what would fit, unless `job` on a loaded model fits in `free` bytes.

    None (unknown) passes.
    """

    def takes(job: Qwen3Job, dtype: str = dtype) -> int:
        return estimate(configs, job, dtype=dtype, backend=backend, policy=policy).running

    def options(free: int) -> dict[str, int]:
        found: dict[str, int] = {}
        frames = largest(job.frames - 1, lambda frames: takes(replace(job, frames=frames)) <= free)
        if frames:
            found[f"max_frames {frames}"] = takes(replace(job, frames=frames))
        return found | {f"dtype {name}": takes(job, name) for name in narrower(dtype, halves_of(backend))}

    seconds = job.frames / config_of(configs, "qwen3_codec", Qwen3CodecConfig).frame_rate
    what = f"{seconds:.1f} s of speech"
    fits.check_running(what, takes(job), backend=backend, free=free, options=options)
