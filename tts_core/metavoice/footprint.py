"""Memory of MetaVoice."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tts_core.codecs import encodec, mbd
from tts_core.codecs.encodec import EncodecConfig
from tts_core.codecs.mbd import MbdConfig
from tts_core.codecs.memory import vocos_window
from tts_core.codecs.policy import CodecPolicy
from tts_core.codecs.vocos import VocosConfig
from tts_core.config import Configs, config_of
from tts_core.errors import UsageError
from tts_core.memory.fits import Plan
from tts_core.memory.footprint import (
    LIVE,
    SCORES,
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
from tts_core.metavoice.config import (
    FIRST_STAGE_BOOKS,
    FirstStageConfig,
    SecondStageConfig,
    SpeakerEncoderConfig,
)
from tts_core.metavoice.inputs import most_frames
from tts_core.metavoice.options import PIECE_SECONDS
from tts_core.text.breaks import Paused
from tts_core.text.duration import expected_seconds, longest_frames
from tts_core.text.pace import CHARACTERS_PER_SECOND
from tts_core.text.spoken import spoken

FRAME_RATE = 75  # frames per second
VOICE_SECONDS = 80  # of speech, whose slices are encoded at once
# Bytes per logit of the second stage while it samples: copies of logits on the device, and the random
# numbers on the host, temporarily in double precision
DRAW_DEVICE, DRAW_HOST = 24, 28
EQ_BANDS, EQ_LIVE = 32, 6  # last step of multi-band diffusion: band waveforms, and live copies of each
HOST = ("torch-cpu", "mlx-cpu", "torch-mps", "mlx-metal")  # backends whose host memory is also the device's


@dataclass(frozen=True)
class MetaVoiceJob:
    """An upper bound on a run: text ids and codec frames of a piece, and pieces run at once.

    rows: computed by the first stage for a piece (FirstStageSampling.rows).
    mbd: decoded by multi-band diffusion.
    """

    text_ids: int
    frames: int
    batch: int = 1
    rows: int = 2
    mbd: bool = False


def metavoice_footprint(configs: Configs, job: MetaVoiceJob, machine: Machine) -> Footprint:
    """Count the bytes of a job, whose stages follow each other; on CUDA Vocos runs beside them.

    EnCodec counts only if "mbd" is present.
    """
    first = config_of(configs, "metavoice", FirstStageConfig)
    kinds = ["metavoice", "metavoice_second_stage", "metavoice_speaker_encoder", "vocos"]
    streams, width = job.batch * job.rows, first.hidden_size
    position = 2 * first.num_hidden_layers * streams * width * machine.size
    cache = position * positions(first, job)
    row = machine.wide * 2 * width + machine.size * max(4 * width, 3 * first.intermediate_size)
    text = layer(streams * job.text_ids, row, heads=first.num_attention_heads, keys=job.text_ids)
    captured_passes = passes(
        streams, job.text_ids, row, heads=first.num_attention_heads, backend=machine.backend
    )
    text = max(text, captured_passes) + sampling(streams * first.vocab_size)
    if machine.backend != "torch-cuda":  # keys and values of texts before they are copied
        read = read_at_once(job.batch, job.rows * job.text_ids, machine.backend)
        text += position // streams * read
    if job.mbd:  # it runs by itself
        beside, after = 0, (sound := _diffusion(configs, job, machine))
    else:
        codec, most = config_of(configs, "vocos", VocosConfig), CodecPolicy().max_frames
        sound = vocos_window(codec, job.frames, most, machine)
        beside, after = beside_and_after(machine, sound)
    return footprint(
        machine,
        weights=held(configs, [*kinds, "encodec"] if "mbd" in configs else kinds, machine),
        row=cache,
        stages=(text + captured_passes + beside,),
        freed=(
            _voice(configs, machine),
            _second_stage(configs, job, machine) + captured_passes + beside,
            captured_passes + after,
        ),
        minute=60 * FRAME_RATE * FIRST_STAGE_BOOKS * position,
        sound=sound,
        graphs=captured_passes,
    )


def positions(config: FirstStageConfig, job: MetaVoiceJob) -> int:
    """Count the ids that the cache has room for: the text, its codes and one more; the last is not read."""
    return min(job.text_ids + FIRST_STAGE_BOOKS * job.frames, config.max_position_embeddings - 1)


def _second_stage(configs: Configs, job: MetaVoiceJob, machine: Machine) -> int:
    """Count the bytes of the network, or of sampling all books."""
    config, size = config_of(configs, "metavoice_second_stage", SecondStageConfig), machine.wide
    window, books = config.max_position_embeddings, len(config.target_vocab_sizes)
    classes, frames = config.target_vocab_sizes[0], min(job.frames, window)
    a_logit = DRAW_DEVICE + (DRAW_HOST if machine.backend in HOST else 0)
    network = size * window * 4 * (config.hidden_size + config.intermediate_size)
    network += min(SCORES, 2 * size * config.num_attention_heads * window**2)
    return max(network, books * classes * (2 * window * size + frames * a_logit))


def _voice(configs: Configs, machine: Machine) -> int:
    """Count the bytes of the speaker encoder's gates; its slices overlap by half."""
    config = config_of(configs, "metavoice_speaker_encoder", SpeakerEncoderConfig)
    return 2 * 100 * VOICE_SECONDS * machine.wide * 6 * config.hidden_size


def _diffusion(configs: Configs, job: MetaVoiceJob, machine: Machine) -> int:
    """Count the bytes of EnCodec, of one band with its weights, or of the last step."""
    codec, bands = config_of(configs, "encodec", EncodecConfig), config_of(configs, "mbd", MbdConfig)
    length, live = job.frames * codec.hop_length, LIVE[machine.backend]
    largest = EQ_LIVE * EQ_BANDS * length
    for band in bands.bands:
        sizes = [math.prod(shape) for shape in mbd.band_parameter_shapes(band).values()]
        weights = sum(sizes) + 2 * max(sizes)  # two tensors on their way, measured on a CPU
        levels = enumerate(band.unet.channels, start=1)
        most = max(width * -(-length // band.unet.stride**level) for level, width in levels)
        largest = max(largest, weights + (band.unet.depth + live) * most)
    return max(machine.wide * largest, widest(machine, encodec.widest(codec, job.frames)))


def usual_characters(window: int) -> int:
    """Limit the characters of a text whose ids, at most one per character, and usual speech fill a window."""
    return (window - 2) * CHARACTERS_PER_SECOND // (FRAME_RATE + CHARACTERS_PER_SECOND)


def _longest(configs: Configs, text: Paused | None, seconds: float | None) -> MetaVoiceJob:
    """A piece, with multi-band diffusion if the model contains it. Without merges an id for each byte."""
    first = config_of(configs, "metavoice", FirstStageConfig).max_position_embeddings
    second = config_of(configs, "metavoice_second_stage", SecondStageConfig).max_position_embeddings
    most = min(round(PIECE_SECONDS * CHARACTERS_PER_SECOND), usual_characters(second))
    piece = "x" * most if text is None else spoken(text.blanked)[:most]
    ids = 1 + len(piece.encode())
    room = most_frames(ids, first, second)
    if room < 1:
        raise UsageError(f"text: {ids} ids leave no room for speech; give a shorter text")
    frames = room if text is None else longest_frames(expected_seconds(piece), FRAME_RATE)
    frames = frames if seconds is None else math.ceil(seconds * FRAME_RATE)
    return MetaVoiceJob(ids, min(room, frames), mbd="mbd" in configs)


def _smaller(job: MetaVoiceJob) -> Mapping[str, MetaVoiceJob]:
    return {"decoder vocos": replace(job, mbd=False)} if job.mbd else {}


PLAN = Plan(
    metavoice_footprint, _longest, lambda _: FRAME_RATE, BACKENDS, _smaller, serial=True, requantized=False
)
