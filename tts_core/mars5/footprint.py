"""Memory of MARS5."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tts_core.codecs import encodec
from tts_core.codecs.encodec import EncodecConfig
from tts_core.codecs.memory import vocos_window
from tts_core.codecs.policy import CodecPolicy
from tts_core.codecs.vocos import VocosConfig
from tts_core.config import Configs, config_of
from tts_core.mars5.config import CodecLMConfig, ResidualTransformerConfig
from tts_core.mars5.options import MAX_LEN, PIECE_SECONDS, Mars5Options
from tts_core.mars5.reference import as_spoken
from tts_core.memory.fits import Plan
from tts_core.memory.footprint import (
    Footprint,
    beside_and_after,
    footprint,
    layer,
    passes,
    read_at_once,
    sampling,
    widest,
)
from tts_core.memory.machine import BACKENDS, Machine
from tts_core.memory.weights import held
from tts_core.text.breaks import Paused
from tts_core.text.pace import CHARACTERS_PER_SECOND

ENCODED = CodecPolicy().max_frames  # frames that the codec encodes at a time
SPOKEN = 1024  # most frames that the vocoder decodes at a time
AHEAD = ("torch-cuda",)  # the text is encoded for all timesteps before the first
DRAWN = 4  # copies of the cells' logits during sampling, besides the heads' own output


@dataclass(frozen=True)
class Mars5Job:
    """An upper bound on a run: one piece of a text.

    prompt_ids: of text, and of the reference's codes in a deep clone.
    frames: new ones.
    text_ids: those that the diffusion reads.
    """

    prompt_ids: int
    frames: int
    prompt_frames: int = 0
    deep: bool = False
    guided: bool = True
    max_len: int = MAX_LEN  # ids, the prompt's included
    batch: int = 1  # texts that the autoregressive network runs at once
    timesteps: int = Mars5Options().timesteps
    text_ids: int = 0

    @property
    def cells(self) -> int:
        """Frames that the diffusion runs over; a deep clone's reference counts twice."""
        return self.frames + 2 * self.prompt_frames * self.deep


def mars5_footprint(configs: Configs, job: Mars5Job, machine: Machine) -> Footprint:
    """Count the bytes of a job, whose stages follow each other; on CUDA the vocoder runs beside the others.

    A single text's cache is freed after the autoregressive network, those of several stay.
    """
    ar = config_of(configs, "mars5", CodecLMConfig)
    nar = config_of(configs, "mars5_nar", ResidualTransformerConfig)
    position = 2 * ar.num_hidden_layers * ar.hidden_size * machine.size * job.batch
    cache = position * min(ar.sliding_window, job.max_len) + 2 * 4 * job.max_len * ar.head_dim
    wide = max(2 * ar.hidden_size + 3 * ar.intermediate_size, 6 * ar.hidden_size)
    ids = job.prompt_ids + 1
    read = read_at_once(job.batch, ids, machine.backend)
    step = layer(read, machine.size * wide, heads=ar.num_attention_heads, keys=ids)
    if machine.backend != "torch-cuda":  # keys and values of prompts before they are copied
        step += position // job.batch * read
    step += sampling(ar.vocab_size * job.batch)
    captured_passes = 0
    if job.batch > 1:  # those of a single text are not captured
        row, heads = machine.size * wide, ar.num_attention_heads
        captured_passes = passes(job.batch, ids, row, heads=heads, backend=machine.backend)
    vocoder = vocos_window(config_of(configs, "vocos", VocosConfig), job.frames, SPOKEN, machine)
    beside, after = beside_and_after(machine, vocoder)
    steps, others = (
        step + captured_passes + beside,
        (_voice(configs, job, machine), _diffusion(nar, job, machine) + captured_passes + beside, after),
    )
    return footprint(
        machine,
        weights=held(configs, ("mars5", "mars5_nar", "encodec", "vocos"), machine),
        row=cache,
        stages=(steps,) if job.batch == 1 else (steps, *others),
        freed=others,
        minute=60 * _frame_rate(configs) * position,
        sound=vocoder,
        graphs=captured_passes,
    )


def _diffusion(config: ResidualTransformerConfig, job: Mars5Job, machine: Machine) -> int:
    """Count the bytes of one layer, or of all logits; and of the text, where it is encoded ahead."""
    streams, wide, size = 2 if job.guided else 1, machine.wide, machine.size
    row = wide * 3 * config.hidden_size + size * 3 * config.intermediate_size
    computed = layer(streams * job.cells, row, heads=config.num_attention_heads, keys=job.cells)
    drawn = job.cells - job.prompt_frames * job.deep
    logits = wide * drawn * config.n_output_codebooks * config.n_classes
    text = job.timesteps * streams * (job.text_ids + 1) * config.hidden_size * size
    ahead = text if machine.backend in AHEAD else 0
    return max(computed, max(2 * streams, streams + DRAWN) * logits) + ahead


def _voice(configs: Configs, job: Mars5Job, machine: Machine) -> int:
    """Count the bytes of the codec's widest layer, or of the speaker encoders."""
    codec, rows = config_of(configs, "encodec", EncodecConfig), job.prompt_frames + 1
    used = [widest(machine, encodec.widest(codec, min(job.prompt_frames, 2 * ENCODED)))]
    for kind, cls in (("mars5", CodecLMConfig), ("mars5_nar", ResidualTransformerConfig)):
        config = config_of(configs, kind, cls)
        row = machine.wide * 3 * (config.hidden_size + config.speaker_intermediate_size)
        used.append(layer(rows, row, heads=config.speaker_heads, keys=rows))
    return max(used)


def _longest(configs: Configs, text: Paused | None, seconds: float | None) -> Mars5Job:
    """A deep clone with the longest reference; without merges an id for each character and each code."""
    rate, most = _frame_rate(configs), int(CHARACTERS_PER_SECOND * PIECE_SECONDS)
    longest = most if text is None else min(most, len(as_spoken(text.blanked)))
    reference = math.ceil(Mars5Options().max_prompt_dur * rate)
    frames = math.ceil((longest / CHARACTERS_PER_SECOND if seconds is None else seconds) * rate)
    ids = min(longest + reference, MAX_LEN)
    return Mars5Job(ids, min(frames, MAX_LEN - reference), reference, deep=True, text_ids=longest)


def _frame_rate(configs: Configs) -> float:
    return config_of(configs, "encodec", EncodecConfig).frame_rate


def _smaller(job: Mars5Job) -> Mapping[str, Mars5Job]:
    others = {"cfg_scale 1": replace(job, guided=False)} if job.guided else {}
    if job.deep:
        ids = max(1, job.prompt_ids - job.prompt_frames)
        others["a shallow clone"] = replace(job, deep=False, prompt_ids=ids)
    if job.max_len > (room := job.prompt_ids + job.frames):
        others[f"generate_max_len_override {room}"] = replace(job, max_len=room)
    return others


PLAN = Plan(mars5_footprint, _longest, _frame_rate, BACKENDS, _smaller, serial=True)
