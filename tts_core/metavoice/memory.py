"""Memory that MetaVoice needs on a backend, in bytes.

The phases run in sequence: the voice is encoded, the first stage fills its cache, the second stage runs once,
the decoder synthesizes the waveform. Sizes come from the tables that the networks are built from; constants
are measured by benchmarks/memory.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tts_core.codecs import encodec, mbd
from tts_core.codecs.encodec import EncodecConfig
from tts_core.codecs.mbd import MbdConfig
from tts_core.codecs.memory import vocos_window
from tts_core.codecs.policy import CodecPolicy
from tts_core.codecs.vocos import VocosConfig
from tts_core.config import Configs, config_of
from tts_core.memory import fits
from tts_core.memory.fits import Option, dtypes, less
from tts_core.memory.machine import Machine
from tts_core.memory.terms import (
    LIVE,
    SCORES,
    Estimate,
    Phase,
    Term,
    activations,
    layer,
    libraries,
    read_at_once,
    with_sound,
)
from tts_core.memory.weights import stored_as, weight_bytes
from tts_core.metavoice.config import (
    FIRST_STAGE_BOOKS,
    FirstStageConfig,
    SecondStageConfig,
    SpeakerEncoderConfig,
)
from tts_core.metavoice.inputs import most_rows
from tts_core.printable import counted

VOICE_SECONDS = 80  # of speech, whose slices are encoded at once
# Bytes per logit of the second stage while it samples: copies of logits on the device, and the random
# numbers on the host, temporarily in double precision
DRAW_DEVICE, DRAW_HOST = 24, 28
EQ_BANDS, EQ_LIVE = 32, 6  # last step of multi-band diffusion: band waveforms, and live copies of each
HOST = ("torch-cpu", "mlx-cpu", "torch-mps", "mlx-metal")  # backends whose host memory is also the device's
FIXED = ("torch-cuda",)  # backends whose caches are allocated at once


@dataclass(frozen=True)
class MetaVoiceJob:
    """An upper bound on a run: text ids and codec frames of a piece, and pieces run at once.

    rows: computed by the first stage for a piece (FirstStageSampling.rows).
    """

    text_ids: int
    frames: int
    batch: int = 1
    rows: int = 2
    decoder: str = "vocos"

    @staticmethod
    def together(jobs: Sequence[MetaVoiceJob]) -> MetaVoiceJob:
        """Bound each of several jobs of one sampling and decoder."""
        return replace(
            jobs[0], text_ids=max(job.text_ids for job in jobs), frames=max(job.frames for job in jobs)
        )


def estimate(configs: Configs, job: MetaVoiceJob, machine: Machine) -> Estimate:
    """Estimate the memory of `job`; the machine's dtype is that of the first stage.

    configs: of the model's parts by kind; EnCodec counts only if "mbd" is present.
    """
    first = config_of(configs, "metavoice", FirstStageConfig)
    second = config_of(configs, "metavoice_second_stage", SecondStageConfig)
    speaker = config_of(configs, "metavoice_speaker_encoder", SpeakerEncoderConfig)
    held = weight_bytes("metavoice", first, machine.dtype, machine.held)
    kinds = (*OTHERS, "encodec") if "mbd" in configs else OTHERS
    others = sum(weight_bytes(kind, configs[kind], machine.dtype) for kind in kinds)
    first_stage = _cache(first, job, machine.size), _activations(first, job, machine)
    return Estimate(
        machine.backend,
        (
            Term("first stage", held, f"its weights, {stored_as(machine)}"),
            Term("others", others, f"all other networks, float{8 * machine.wide}"),
            libraries(machine.backend),
        ),
        (
            Phase("voice", (_voice(speaker, machine.wide),)),
            *with_sound(
                machine.backend if job.decoder == "vocos" else "",  # a diffusion runs by itself
                [
                    Phase("first stage", first_stage),
                    Phase("second stage", (_second_stage(second, job, machine),)),
                ],
                Phase("decoder", (_decoder(configs, job, machine),)),
            ),
        ),
    )


OTHERS = ("metavoice_second_stage", "metavoice_speaker_encoder", "vocos")


def positions(config: FirstStageConfig, job: MetaVoiceJob) -> int:
    """Count the ids that the cache has room for: the text, its codes and one more; the last is not read."""
    return min(job.text_ids + FIRST_STAGE_BOOKS * job.frames, config.max_position_embeddings - 1)


def _cache(config: FirstStageConfig, job: MetaVoiceJob, size: int) -> Term:
    room, streams = positions(config, job), job.batch * job.rows
    held = 2 * config.num_hidden_layers * streams * config.hidden_size * size * room
    return Term("cache", held, f"keys and values of {room} ids, {counted(streams, 'row')}")


def _activations(config: FirstStageConfig, job: MetaVoiceJob, machine: Machine) -> Term:
    streams, width = job.batch * job.rows, config.hidden_size
    row = machine.wide * 2 * width + machine.size * max(4 * width, 3 * config.intermediate_size)
    read = layer(streams * job.text_ids, row, heads=config.num_attention_heads, keys=job.text_ids)
    if machine.backend != "torch-cuda":
        ids = read_at_once(job.batch, job.rows * job.text_ids, machine.backend)
        read += 2 * config.num_hidden_layers * width * machine.size * ids  # before they are copied
    return activations(read, "the text", streams * config.vocab_size)


def _second_stage(config: SecondStageConfig, job: MetaVoiceJob, machine: Machine) -> Term:
    window, books = config.max_position_embeddings, len(config.target_vocab_sizes)
    classes = config.target_vocab_sizes[0]
    size, host_too = machine.wide, machine.backend in HOST
    whole = 2 * books * window * classes * size
    frames = min(job.frames, window)
    drawn = books * frames * classes * (DRAW_DEVICE + DRAW_HOST * host_too)
    network = size * window * 4 * (config.hidden_size + config.intermediate_size)
    network += min(SCORES, 2 * size * config.num_attention_heads * window**2)
    return Term("second stage", max(network, whole + drawn), f"sampling {books} books of {frames} frames")


def _voice(config: SpeakerEncoderConfig, size: int) -> Term:
    frames = 2 * 100 * VOICE_SECONDS  # slices overlap by half
    held = frames * size * 6 * config.hidden_size
    return Term("voice", held, "gates of the speaker encoder, a minute of speech")


def _decoder(configs: Configs, job: MetaVoiceJob, machine: Machine) -> Term:
    if job.decoder == "mbd":
        return _diffusion(configs, job, machine)
    config = config_of(configs, "vocos", VocosConfig)
    return vocos_window("decoder", config, job.frames, CodecPolicy().max_frames, machine)


def _diffusion(configs: Configs, job: MetaVoiceJob, machine: Machine) -> Term:
    codec, bands = config_of(configs, "encodec", EncodecConfig), config_of(configs, "mbd", MbdConfig)
    length, live = job.frames * codec.hop_length, LIVE[machine.backend]
    largest = 0
    for band in bands.bands:
        held = sum(math.prod(shape) for shape in mbd.band_parameter_shapes(band).values())
        widest = max(
            width * -(-length // band.unet.stride ** (level + 1))
            for level, width in enumerate(band.unet.channels)
        )
        largest = max(largest, held + (band.unet.depth + live) * widest)
    latents, matched = live * encodec.widest(codec, job.frames), EQ_LIVE * EQ_BANDS * length
    return Term(
        "decoder",
        machine.wide * max(latents, largest, matched),
        f"EnCodec, then one of {len(bands.bands)} bands with its weights, {job.frames} frames",
    )


def check_loading(configs: Configs, machine: Machine) -> None:
    """Raise ResourceError, naming a dtype or quantization that fits, unless all weights fit."""
    smallest = MetaVoiceJob(text_ids=1, frames=1)
    fits.check_loading("MetaVoice", partial(estimate, configs), smallest, machine, requantized=False)


def places_that_fit(configs: Configs, places: int, machine: Machine) -> int:
    """Count the texts, at most `places`, whose batch fits, with Vocos.

    Raises ResourceError if not even one fits.
    """
    window = config_of(configs, "metavoice", FirstStageConfig).max_position_embeddings

    def takes(texts: int) -> int:
        frames, rows = window // FIRST_STAGE_BOOKS, most_rows(texts)
        return estimate(configs, MetaVoiceJob(text_ids=1, frames=frames, batch=rows, rows=1), machine).running

    return fits.places(places, takes, machine)


def check_running(configs: Configs, job: MetaVoiceJob, machine: Machine) -> None:
    """Raise ResourceError, naming what would fit, unless `job` on a loaded model fits."""
    plan = partial(estimate, configs)

    def smaller() -> Iterator[Option[MetaVoiceJob]]:
        if fewer := less(plan, job, machine, "batch"):
            yield f"a batch_size of {fewer.batch}", fewer, machine
        yield from dtypes(job, machine)
        if job.decoder == "mbd":
            yield "decoder vocos", replace(job, decoder="vocos"), machine
        if job.frames > 1:
            half = replace(job, frames=job.frames // 2, text_ids=max(1, job.text_ids // 2))
            yield "pieces half as long", half, machine

    pieces = "a piece" if job.batch == 1 else f"{job.batch} pieces"
    what = f"{pieces} of {job.text_ids} ids and {job.frames} frames"
    fits.check_running(what, plan, job, machine, smaller)
