"""Memory that MARS5 needs on a backend, in bytes.

The phases run in sequence: the reference is encoded, the autoregressive network fills its cache, the
diffusion runs over all frames, the vocoder synthesizes the waveform. Sizes come from the tables that the
networks are built from. The number of live tensors is counted in the code of both sides; constants are
measured by benchmarks/memory.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tts_core.codecs import encodec
from tts_core.codecs.encodec import EncodecConfig
from tts_core.codecs.memory import vocos_window
from tts_core.codecs.policy import CodecPolicy
from tts_core.codecs.vocos import VocosConfig
from tts_core.config import Configs, config_of
from tts_core.mars5.config import CodecLMConfig, ResidualTransformerConfig
from tts_core.mars5.options import MAX_LEN, Mars5Options
from tts_core.memory import fits
from tts_core.memory.fits import Option, dtypes
from tts_core.memory.machine import Machine
from tts_core.memory.terms import (
    LIVE,
    Estimate,
    Phase,
    Term,
    activations,
    layer,
    libraries,
    read_at_once,
    with_sound,
)
from tts_core.memory.weights import stored_with_norms, weight_bytes
from tts_core.printable import counted

HEARD = CodecPolicy().max_frames  # frames that the codec encodes at a time
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

    @property
    def rows(self) -> int:
        """Frames that a timestep computes, in both branches of guidance."""
        return self.cells * (2 if self.guided else 1)

    @staticmethod
    def together(jobs: Sequence[Mars5Job]) -> Mars5Job:
        """Bound several runs at once, each by the longest."""
        return Mars5Job(
            prompt_ids=max(job.prompt_ids for job in jobs),
            frames=max(job.frames for job in jobs),
            prompt_frames=max(job.prompt_frames for job in jobs),
            deep=any(job.deep for job in jobs),
            guided=any(job.guided for job in jobs),
            max_len=max(job.max_len for job in jobs),
            batch=sum(job.batch for job in jobs),
            timesteps=max(job.timesteps for job in jobs),
            text_ids=max(job.text_ids for job in jobs),
        )


def estimate(configs: Configs, job: Mars5Job, machine: Machine) -> Estimate:
    """Estimate the memory of `job`. configs: of the model's parts by kind."""
    ar = config_of(configs, "mars5", CodecLMConfig)
    nar = config_of(configs, "mars5_nar", ResidualTransformerConfig)
    codec, vocoder = config_of(configs, "encodec", EncodecConfig), config_of(configs, "vocos", VocosConfig)
    cache = _cache(ar, job, machine.size)
    kept = (cache,) if job.batch > 1 else ()  # a single text's is freed before the next phase
    held = {kind: weight_bytes(kind, configs[kind], machine.dtype, machine.held) for kind in KINDS}
    others = sum(held.values()) - held["mars5"]
    return Estimate(
        machine.backend,
        (
            Term("AR", held["mars5"], f"its weights, {stored_with_norms(machine)}"),
            Term("others", others, f"weights of NAR (like AR), codec and vocoder, float{8 * machine.wide}"),
            libraries(machine.backend),
        ),
        (
            Phase("voice", (_voice(ar, nar, codec, job, machine), *kept)),
            *with_sound(
                machine.backend,
                [
                    Phase("AR", (cache, _activations(ar, job, machine))),
                    Phase("NAR", (_diffusion(nar, job, machine), *kept)),
                ],
                Phase("vocoder", (vocos_window("vocoder", vocoder, job.frames, SPOKEN, machine), *kept)),
            ),
        ),
    )


KINDS = ("mars5", "mars5_nar", "encodec", "vocos")


def _cache(config: CodecLMConfig, job: Mars5Job, size: int) -> Term:
    room = min(config.sliding_window, job.max_len)
    held = 2 * config.num_hidden_layers * config.hidden_size * size * room * job.batch
    tables = 2 * 4 * job.max_len * config.head_dim
    texts = "" if job.batch == 1 else f", {job.batch} texts"
    return Term("cache", held + tables, f"keys and values of {room} ids{texts}")


def _activations(config: CodecLMConfig, job: Mars5Job, machine: Machine) -> Term:
    size = machine.size
    row = size * max(2 * config.hidden_size + 3 * config.intermediate_size, 6 * config.hidden_size)
    rows = read_at_once(job.batch, job.prompt_ids + 1, machine.backend)
    read = layer(rows, row, heads=config.num_attention_heads, keys=job.prompt_ids + 1)
    if machine.backend != "torch-cuda":
        read += 2 * config.num_hidden_layers * config.hidden_size * size * rows  # before they are copied
    return activations(read, f"{rows} ids of prompts", config.vocab_size * job.batch)


def _diffusion(config: ResidualTransformerConfig, job: Mars5Job, machine: Machine) -> Term:
    streams, wide, size = 2 if job.guided else 1, machine.wide, machine.size
    row = wide * 3 * config.hidden_size + size * 3 * config.intermediate_size
    computed = layer(job.rows, row, heads=config.num_attention_heads, keys=job.cells)
    drawn = job.cells - job.prompt_frames * job.deep
    logits = wide * drawn * config.n_output_codebooks * config.n_classes
    heads = max(2 * streams, streams + DRAWN) * logits
    why = f"{job.cells} frames, {counted(streams, 'row')}: one layer, or all logits"
    if machine.backend not in AHEAD:
        return Term("NAR", max(computed, heads), why)
    text = job.timesteps * streams * (job.text_ids + 1) * config.hidden_size * size
    return Term("NAR", max(computed, heads) + text, f"{why}; the text of {job.timesteps} timesteps")


def _voice(
    ar: CodecLMConfig,
    nar: ResidualTransformerConfig,
    codec: EncodecConfig,
    job: Mars5Job,
    machine: Machine,
) -> Term:
    fed = min(job.prompt_frames, 2 * HEARD)
    used = [LIVE[machine.backend] * machine.wide * encodec.widest(codec, fed)]
    for config in (ar, nar):
        row = machine.wide * 3 * (config.hidden_size + config.speaker_intermediate_size)
        rows = job.prompt_frames + 1
        used.append(layer(rows, row, heads=config.speaker_heads, keys=rows))
    return Term("voice", max(used), f"the codec's widest layer, {fed} frames; speaker vectors")


def check_loading(configs: Configs, machine: Machine) -> None:
    """Raise ResourceError, naming a dtype or quantization that fits, unless all weights fit."""
    fits.check_loading("MARS5", partial(estimate, configs), Mars5Job(prompt_ids=1, frames=1), machine)


def places_that_fit(configs: Configs, job: Mars5Job, machine: Machine) -> int:
    """Count the texts of a job's batch that fit together.

    Raises ResourceError if not even one fits.
    """

    def takes(texts: int) -> int:
        return estimate(configs, replace(job, batch=texts), machine).running

    return fits.places(job.batch, takes, machine)


def check_running(configs: Configs, job: Mars5Job, machine: Machine) -> None:
    """Raise ResourceError, naming what would fit, unless `job` on a loaded model fits."""
    _check(partial(estimate, configs), configs, job, machine)


def check_diffusion(configs: Configs, job: Mars5Job, machine: Machine) -> None:
    """Raise the same for a piece whose ids are known, unless its other stages fit beside the batch."""
    _check(lambda job, machine: estimate(configs, job, machine).beside("cache"), configs, job, machine)


def _check(
    plan: Callable[[Mars5Job, Machine], Estimate], configs: Configs, job: Mars5Job, machine: Machine
) -> None:

    def smaller() -> Iterator[Option[Mars5Job]]:
        if job.frames > 1:
            half = replace(job, frames=job.frames // 2)
            yield "pieces half as long (piece_seconds)", half, machine
        if job.deep:
            ids = max(1, job.prompt_ids - job.prompt_frames)
            yield "a shallow clone", replace(job, deep=False, prompt_ids=ids), machine
        if job.guided:
            yield "cfg_scale 1", replace(job, guided=False), machine
        if job.max_len > 2 * (job.prompt_ids + job.frames):
            room = job.prompt_ids + job.frames
            yield f"generate_max_len_override {room}", replace(job, max_len=room), machine
        yield from dtypes(job, machine)

    rate = config_of(configs, "encodec", EncodecConfig).frame_rate
    what = f"{job.frames / rate:.1f} s of speech and {job.prompt_frames / rate:.1f} s of reference"
    fits.check_running(what, plan, job, machine, smaller)
