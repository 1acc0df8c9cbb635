"""Memory of Dia2."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tts_core.codecs import mimi
from tts_core.codecs.memory import mimi_fed, stream_frames, stream_states
from tts_core.codecs.mimi import MimiConfig
from tts_core.config import Configs, config_of
from tts_core.dia2.config import Dia2Config
from tts_core.dia2.machine import MAX_PADDING
from tts_core.dia2.options import Dia2Options
from tts_core.dia2.pieces import room
from tts_core.dia2.recordings import longest_voice
from tts_core.dia2.script import SPEAKERS
from tts_core.memory.fits import Plan
from tts_core.memory.footprint import (
    Footprint,
    beside_and_after,
    footprint,
    gated_row,
    layer,
    passes,
    read_at_once,
    rounded,
    sampling,
    widest,
)
from tts_core.memory.machine import Machine
from tts_core.memory.weights import held
from tts_core.text.breaks import Paused
from tts_core.text.duration import expected_seconds

FIXED = ("torch-cuda",)  # backends whose caches are allocated at once


@dataclass(frozen=True)
class Dia2Job:
    """An upper bound on runs that share steps.

    frames: of speech, without the prefix.
    guided: unconditional rows run too.
    batch: runs.
    """

    frames: int
    prefix_frames: int = 0
    guided: bool = True
    batch: int = 1

    @property
    def rows(self) -> int:
        """Rows of the transformer."""
        return self.batch * (1 + self.guided)


def dia2_footprint(configs: Configs, job: Dia2Job, machine: Machine) -> Footprint:
    """Count the bytes of a job: recordings are encoded, then the steps, with the codec after or beside."""
    config, codec = config_of(configs, "dia2", Dia2Config), config_of(configs, "mimi", MimiConfig)
    stack, policy, steps = config.transformer, machine.policy or mimi.POLICY, cached_rows(config, job)
    position = 2 * job.rows * stack.num_key_value_heads * stack.head_dim * machine.size  # of a layer
    states, graphs = stream_states(mimi.carried(codec), job.batch, machine)
    row = (stack.num_hidden_layers + 1) * position * rounded(steps) + states  # a layer's while it grows
    prefixes = read_at_once(job.batch, (1 + job.guided) * job.prefix_frames, machine.backend)
    most = max(job.rows, prefixes)
    width = stack.num_attention_heads * stack.head_dim
    gated = gated_row(stack.hidden_size, stack.intermediate_size, width, machine.size)
    step = layer(most, gated, heads=stack.num_attention_heads, keys=steps)
    step += sampling(job.rows * config.audio_vocab_size)
    heads = stack.num_attention_heads
    captured_passes = passes(job.rows, job.prefix_frames, gated, heads=heads, backend=machine.backend)
    if machine.backend not in FIXED:  # keys and values of prefixes before they are copied
        step += prefixes * stack.num_hidden_layers * position // job.rows
    shared, captured = stream_frames(job.frames, job.batch, policy, machine)
    fed = max(min(job.frames, policy.max_frames), shared) + captured
    sound = graphs + widest(machine, mimi.widest(codec, fed))
    beside, after = beside_and_after(machine, sound)
    prefix = 0
    if job.prefix_frames:
        prefix = widest(machine, mimi.widest(codec, mimi_fed(codec, job.prefix_frames, policy)))
    stages = config.n_streams - 1 if config.depformer_has_rope else 0
    tables = (2 * config.max_context_steps + 1) * stack.head_dim + stages * config.depformer.head_dim
    return footprint(
        machine,
        weights=held(configs, ("dia2", "mimi"), machine, tables=tables),
        row=row,
        stages=(step + captured_passes + beside, captured_passes + after),
        freed=(prefix,),
        minute=60 * codec.frame_rate * stack.num_hidden_layers * position,
        sound=sound,
        graphs=graphs + captured_passes,
    )


def cached_rows(config: Dia2Config, job: Dia2Job) -> int:
    """Count the steps that a run reads: the prefix, and all but the last column of the speech."""
    return job.prefix_frames + min(config.max_context_steps, job.frames + config.longest_delay - 1)


def longest_frames(config: Dia2Config) -> int:
    """Count the frames of the longest run."""
    return config.max_context_steps + 1 - config.longest_delay


def _longest(configs: Configs, text: Paused | None, seconds: float | None) -> Dia2Job:
    """Later pieces of a text that is longer than a run also read the voice of the first one. A word of more
    than 6 tokens, which only a tokenizer knows, takes more steps than are counted.
    """
    config, rate = config_of(configs, "dia2", Dia2Config), _frame_rate(configs)
    most, voice = longest_frames(config), 0
    frames = most
    if text is not None:
        paused = sum(text.silences)
        words = sum(word.upper() not in SPEAKERS for word in text.blanked.split())
        if words * (1 + MAX_PADDING) + paused * rate > room(config, Dia2Options().initial_padding):
            voice = longest_voice(config, rate)
        else:
            expected = 2 * expected_seconds(text.blanked) + paused
            frames = math.ceil(expected * rate) + config.longest_delay
    return Dia2Job(min(most, frames if seconds is None else math.ceil(seconds * rate)), voice)


def _frame_rate(configs: Configs) -> float:
    return config_of(configs, "mimi", MimiConfig).frame_rate


def _smaller(job: Dia2Job) -> Mapping[str, Dia2Job]:
    return {"cfg_scale 1": replace(job, guided=False)} if job.guided else {}


PLAN = Plan(dia2_footprint, _longest, _frame_rate, FIXED, _smaller)
