"""Memory that Qwen3-TTS needs on a backend: weights, caches, activations and the codec, in bytes.

Sizes come from the tables that the networks are built from (config.py, codecs/qwen3_codec.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tts_core.codecs import mimi, qwen3_codec
from tts_core.codecs.memory import most_rows, stream_states, widest_layer
from tts_core.codecs.policy import CAPTURED, CodecPolicy
from tts_core.codecs.qwen3_codec import Qwen3CodecConfig
from tts_core.config import Configs, config_of
from tts_core.memory import fits, weights
from tts_core.memory.fits import Option, dtypes, less
from tts_core.memory.machine import Machine
from tts_core.memory.terms import (
    LIVE,
    LOGITS,
    OVERLAPS,
    Estimate,
    Phase,
    Term,
    gated_row,
    layer,
    rounded,
    scores,
    with_sound,
)
from tts_core.memory.weights import kept_terms
from tts_core.printable import counted
from tts_core.qwen3.config import Qwen3Config
from tts_core.qwen3.speaker import HOP, SpeakerConfig

FIXED = ("torch-cuda",)  # backends whose caches are allocated at once

# Live tensors of the codec's widest layer; on a CPU with MLX measured, elsewhere those of other codecs. In
# PyTorch 5.8 are counted, in Snake, where no convolution has its workspace
CODEC_LIVE = LIVE | {"mlx-cpu": 6}
CUDA_LIVE = {"float32": 6, "tf32": 7, "bfloat16": 5}  # in the decoder: 5.9, 6.9 and 5.0 on an H200


@dataclass(frozen=True)
class Qwen3Job:
    """An upper bound on texts that share steps.

    frames: of speech.
    prompt: positions that are read before it, those of a recording among them.
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


def estimate(configs: Configs, job: Qwen3Job, machine: Machine) -> Estimate:
    """Estimate the memory of `job`. configs: of the model's parts by kind."""
    config = config_of(configs, "qwen3", Qwen3Config)
    codec = config_of(configs, "qwen3_codec", Qwen3CodecConfig)
    cache = _cache(config, job, machine)
    steps = [
        Phase("prompt", (cache, _prompt(config, job, machine))),
        Phase("steps", (cache, _steps(config, job, machine.size))),
    ]
    phases = with_sound(machine.backend, steps, Phase("codec", (cache, *_decoding(codec, job, machine))))
    if job.recording:
        phases = (Phase("recording", (_encoding(config, codec, job, machine),)), *phases)
    held = weight_bytes(config, machine.dtype, machine.held)
    codec_held = weights.weight_bytes("qwen3_codec", codec, "float64" if machine.wide == 8 else "float32")
    return Estimate(machine.backend, kept_terms(held, codec_held, machine), phases)


def weight_bytes(config: Qwen3Config, dtype: str, quantization: Mapping[str, Any] | None = None) -> int:
    """Count the bytes of all networks' tensors, and of their rotary tables in float32."""
    tables = config.max_positions * config.talker.head_dim + config.n_codebooks * config.predictor.head_dim
    return weights.weight_bytes("qwen3", config, dtype, quantization) + 4 * tables


def _cache(config: Qwen3Config, job: Qwen3Job, machine: Machine) -> Term:
    stack, rows = config.talker, counted(job.texts, "row")
    if machine.backend in FIXED:
        capacity, layers, grown = job.positions + 1, stack.num_hidden_layers, ""
    else:
        capacity, layers = rounded(job.positions), stack.num_hidden_layers + 1
        grown = "; a layer's while it grows"
    why = f"keys and values of {job.positions} positions, capacity {capacity}, {rows}{grown}"
    return Term("cache", job.texts * layers * _kept_layer(config, capacity, machine.size), why)


def _kept_layer(config: Qwen3Config, positions: int, size: int) -> int:
    """Bytes of a layer's keys and values of so many positions of one text."""
    return 2 * config.talker.num_key_value_heads * config.talker.head_dim * size * positions


def _prompt(config: Qwen3Config, job: Qwen3Job, machine: Machine) -> Term:
    """One prompt after the other is read, into a cache of its own where the batch's is of fixed size."""
    stack, size = config.talker, machine.size
    row = _row(config, size) + 3 * size * config.text_hidden_size
    used = layer(job.prompt, row, heads=stack.num_attention_heads, keys=job.prompt)
    why = f"one layer of {counted(job.prompt, 'position')}, and embeddings of text"
    if machine.backend in FIXED:
        used += (stack.num_hidden_layers + 1) * _kept_layer(config, rounded(job.prompt), size)
        why += "; its keys and values before they are copied"
    return Term("prompt", used, why)


def _steps(config: Qwen3Config, job: Qwen3Job, size: int) -> Term:
    stack, other = config.talker, config.predictor
    rows = job.texts * _row(config, size) + scores(job.texts * stack.num_attention_heads, job.positions)
    predicted = 2 * size * other.num_key_value_heads * other.head_dim * config.n_codebooks
    kept = job.texts * (
        other.num_hidden_layers * predicted + 4 * config.numbers + LOGITS * 4 * config.vocab_size
    )
    return Term(
        "activations",
        rows + kept,
        f"one layer of {counted(job.texts, 'row')}; logits, their candidates, noise",
    )


def _row(config: Qwen3Config, size: int) -> int:
    """Bytes live in a layer of either stack for one position."""
    return max(
        gated_row(each.hidden_size, each.intermediate_size, each.num_attention_heads * each.head_dim, size)
        for each in (config.talker, config.predictor)
    )


def _decoding(codec: Qwen3CodecConfig, job: Qwen3Job, machine: Machine) -> tuple[Term, ...]:
    policy = _policy(machine)
    captured = CAPTURED if machine.backend in OVERLAPS else 0
    together = job.frames * most_rows(job.texts, machine.backend)
    fed = max(most_fed(job, policy, captured), min(together, policy.max_frames))
    live = CODEC_LIVE | {"torch-cuda": CUDA_LIVE[machine.decoded_in]}
    states = stream_states(qwen3_codec.carried(codec.decoder), job.texts, captured, machine)
    return _widest("codec", qwen3_codec.widest(codec.decoder, fed), fed, machine, live), *states


def most_fed(job: Qwen3Job, policy: CodecPolicy, captured: int = 0) -> int:
    """Count the frames of the largest call of the decoder: a window.

    The windows are even, or those of a stream by itself or among others; a recording's come before.
    captured: frames of the longest piece of a stream that is captured; such pieces have memory of their own.
    """

    def most(cuts: Iterable[tuple[int, int]]) -> int:
        return max((stop - start for start, stop in cuts), default=0)

    streams = (policy.decode_cuts(job.frames), _served_cuts(policy, job.frames))
    whole = min(max(job.recording, job.frames), policy.max_frames)
    return max(whole, min(captured, job.frames) + max(map(most, streams)))


def _served_cuts(policy: CodecPolicy, frames: int) -> Iterator[tuple[int, int]]:
    start = 0
    while start < frames:
        stop = min(policy.served_stop(start), frames)
        yield start, stop
        start = stop


def _encoding(config: Qwen3Config, codec: Qwen3CodecConfig, job: Qwen3Job, machine: Machine) -> Term:
    most = min(job.recording, _policy(machine).max_frames)
    [*_, last] = mimi.encode_windows(codec.encoder, 3 * most, most)
    fed = min(job.recording, last.stop - last.first)
    heard = mimi.widest(codec.encoder, fed)
    if config.speaker_encoder is not None:
        heard = max(heard, _speaker(config.speaker_encoder, job.recording / codec.frame_rate))
    return _widest("recordings", heard, fed, machine)


def _speaker(config: SpeakerConfig, seconds: float) -> int:
    """Count the largest tensor of the speaker encoder: the last blocks' sum with mean and deviation."""
    return 3 * config.enc_channels[-1] * math.ceil(seconds * config.sample_rate / HOP)


def _widest(
    name: str, elements: int, frames: int, machine: Machine, live: Mapping[str, int] = CODEC_LIVE
) -> Term:
    return widest_layer(name, elements, f"the widest layer, {frames} frames", machine, live)


def _policy(machine: Machine) -> CodecPolicy:
    return machine.policy or qwen3_codec.POLICY


def check_loading(configs: Configs, machine: Machine) -> None:
    """Raise ResourceError, naming what fits, unless the weights fit."""
    fits.check_loading("the model", partial(estimate, configs), Qwen3Job(frames=1), machine)


def check_running(configs: Configs, job: Qwen3Job, machine: Machine) -> None:
    """Raise ResourceError, naming what would fit, unless `job` on a loaded model fits."""
    plan = partial(estimate, configs)

    def smaller() -> Iterator[Option[Qwen3Job]]:
        if shorter := less(plan, job, machine, "frames"):
            yield f"max_frames {shorter.frames}", shorter, machine
        yield from dtypes(job, machine)

    seconds = job.frames / config_of(configs, "qwen3_codec", Qwen3CodecConfig).frame_rate
    fits.check_running(f"{seconds:.1f} s of speech", plan, job, machine, smaller)
