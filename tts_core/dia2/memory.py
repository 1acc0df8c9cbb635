"""Memory that Dia2 needs on a backend: weights, caches, activations and the codec, in bytes.

Sizes come from the tables that the networks are built from (shapes.py, codecs/mimi.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tts_core.codecs import mimi
from tts_core.codecs.memory import most_rows, stream_states, widest_layer
from tts_core.codecs.mimi import MimiConfig
from tts_core.codecs.policy import CAPTURED
from tts_core.config import Configs, config_of
from tts_core.dia2.config import Dia2Config
from tts_core.memory import fits, weights
from tts_core.memory.fits import Option, dtypes, less
from tts_core.memory.machine import Machine
from tts_core.memory.terms import (
    OVERLAPS,
    Estimate,
    Phase,
    Term,
    activations,
    gated_row,
    layer,
    rounded,
    with_sound,
)
from tts_core.memory.weights import kept_terms
from tts_core.printable import counted

FIXED = ("torch-cuda",)  # backends whose caches are allocated at once


@dataclass(frozen=True)
class Dia2Job:
    """An upper bound on runs that share steps.

    frames: of speech, without the prefix.
    guided: unconditional rows run too.
    texts: runs.
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


def estimate(configs: Configs, job: Dia2Job, machine: Machine) -> Estimate:
    """Estimate the memory of `job`. configs: of the model's parts by kind."""
    config, codec = config_of(configs, "dia2", Dia2Config), config_of(configs, "mimi", MimiConfig)
    cache = _cache(config, job, machine.size)
    steps = Phase("steps", (cache, _activations(config, job, machine.size)))
    sound = Phase("codec", (cache, *_decoding(codec, job, machine)))
    phases = with_sound(machine.backend, [steps], sound)
    if job.prefix_frames:
        phases = (Phase("prefix", (_encoding(codec, job, machine),)), *phases)
    held = weight_bytes(config, machine.dtype, machine.held)
    codec_held = weights.weight_bytes("mimi", codec, machine.dtype)
    return Estimate(machine.backend, kept_terms(held, codec_held, machine), phases)


def weight_bytes(config: Dia2Config, dtype: str, quantization: Mapping[str, Any] | None = None) -> int:
    """Count the bytes of both networks' tensors, and of their rotary tables in float32."""
    positions = 2 * config.max_context_steps + 1
    stages = config.n_streams - 1 if config.depformer_has_rope else 0
    tables = positions * config.transformer.head_dim + stages * config.depformer.head_dim
    return weights.weight_bytes("dia2", config, dtype, quantization) + 4 * tables


def cached_rows(config: Dia2Config, job: Dia2Job) -> int:
    """Count the steps that a run reads: the prefix, and all but the last column of the speech."""
    return job.prefix_frames + min(config.max_context_steps, job.frames + config.longest_delay - 1)


def _cache(config: Dia2Config, job: Dia2Job, size: int) -> Term:
    stack, steps = config.transformer, cached_rows(config, job)
    capacity, rows = rounded(steps), counted(job.rows, "row")
    layer = 2 * job.rows * stack.num_key_value_heads * stack.head_dim * size * capacity
    why = f"keys and values of {steps} steps, capacity {capacity}, {rows}; a layer's while it grows"
    return Term("cache", (stack.num_hidden_layers + 1) * layer, why)


def _activations(config: Dia2Config, job: Dia2Job, size: int) -> Term:
    stack = config.transformer
    most = max(job.rows, (1 + job.guided) * job.prefix_frames)  # prefixes are read one by one
    width = stack.num_attention_heads * stack.head_dim
    row = gated_row(stack.hidden_size, stack.intermediate_size, width, size)
    read = layer(most, row, heads=stack.num_attention_heads, keys=cached_rows(config, job))
    return activations(read, counted(most, "row"), job.rows * config.audio_vocab_size)


def _decoding(codec: MimiConfig, job: Dia2Job, machine: Machine) -> tuple[Term, ...]:
    together = job.frames * most_rows(job.texts, machine.backend)
    fed = min(together, (machine.policy or mimi.POLICY).max_frames)
    captured = CAPTURED if machine.backend in OVERLAPS else 0
    states = stream_states(mimi.carried(codec), job.texts, captured, machine)
    return _widest("codec", codec, fed, machine), *states


def _encoding(codec: MimiConfig, job: Dia2Job, machine: Machine) -> Term:
    most = min(job.prefix_frames, (machine.policy or mimi.POLICY).max_frames)
    [*_, last] = mimi.encode_windows(codec, 3 * most, most)
    return _widest("recordings", codec, min(job.prefix_frames, last.stop - last.first), machine)


def _widest(name: str, codec: MimiConfig, frames: int, machine: Machine) -> Term:
    where = f"the codec's widest layer, {frames} frames"
    return widest_layer(name, mimi.widest(codec, frames), where, machine)


def check_loading(configs: Configs, machine: Machine) -> None:
    """Raise ResourceError, naming what fits, unless the weights fit."""
    fits.check_loading("the model", partial(estimate, configs), Dia2Job(frames=1), machine)


def check_running(configs: Configs, job: Dia2Job, machine: Machine) -> None:
    """Raise ResourceError, naming what would fit, unless `job` on a loaded model fits."""
    plan = partial(estimate, configs)

    def smaller() -> Iterator[Option[Dia2Job]]:
        if shorter := less(plan, job, machine, "frames"):
            yield f"max_frames {shorter.frames}", shorter, machine
        yield from dtypes(job, machine)
        if job.guided:
            yield "cfg_scale 1", replace(job, guided=False), machine

    seconds = job.frames / config_of(configs, "mimi", MimiConfig).frame_rate
    fits.check_running(f"{seconds:.1f} s of speech", plan, job, machine, smaller)
