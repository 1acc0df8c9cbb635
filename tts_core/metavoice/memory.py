"""Memory that MetaVoice needs on a backend, in bytes.

The phases run in sequence: the voice is encoded, the first stage fills its cache, the second stage runs once,
the decoder synthesizes the waveform. Sizes come from the tables that the networks are built from; constants
are measured by benchmarks/metavoice_memory.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tts_core.codecs import encodec, mbd, vocos
from tts_core.codecs.encodec import EncodecConfig
from tts_core.codecs.mbd import MbdConfig
from tts_core.codecs.policy import CodecPolicy
from tts_core.codecs.vocos import VocosConfig
from tts_core.config import Configs, config_of
from tts_core.memory import fits, terms
from tts_core.memory.fits import halves_of, largest, narrower
from tts_core.memory.terms import (
    BYTES,
    LIVE,
    LOGITS,
    SCORES,
    Estimate,
    Phase,
    Term,
    libraries,
    scores,
    stored_as,
)
from tts_core.metavoice import config as metavoice
from tts_core.metavoice.config import (
    FIRST_STAGE_BOOKS,
    FirstStageConfig,
    SecondStageConfig,
    SpeakerEncoderConfig,
)
from tts_core.metavoice.rows import most_rows
from tts_core.printable import counted

Shapes = Mapping[str, tuple[int, ...]]

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


def estimate(
    configs: Configs,
    job: MetaVoiceJob,
    *,
    dtype: str,
    backend: str,
    quantization: Mapping[str, Any] | None = None,
) -> Estimate:
    """Estimate the memory of `job`.

    configs: of the model's parts by kind; EnCodec counts only if "mbd" is present.
    dtype: of the first stage; all others use at least float32.
    quantization: group_size, bits and mode, as in config.json; torch dequantizes when it loads.
    """
    size, wide = BYTES[dtype], max(4, BYTES[dtype])
    first = config_of(configs, "metavoice", FirstStageConfig)
    second = config_of(configs, "metavoice_second_stage", SecondStageConfig)
    quantization = None if backend.startswith("torch") else quantization
    return Estimate(
        backend,
        (
            Term(
                "first stage",
                weight_bytes(first, dtype, quantization),
                f"its weights, {stored_as(dtype, quantization)}",
            ),
            Term("others", other_weight_bytes(configs, wide), f"all other networks, float{8 * wide}"),
            libraries(backend),
        ),
        (
            Phase(
                "voice",
                (_voice(config_of(configs, "metavoice_speaker_encoder", SpeakerEncoderConfig), wide),),
            ),
            Phase("first stage", (_cache(first, job, size), _activations(first, job, size))),
            Phase("second stage", (_second_stage(second, job, wide, backend),)),
            Phase("decoder", (_decoder(configs, job, wide, backend),)),
        ),
    )


def weight_bytes(config: FirstStageConfig, dtype: str, quantization: Mapping[str, Any] | None = None) -> int:
    """Count the bytes of the first stage's tensors in memory, with scales and biases of quantized ones."""
    shapes = metavoice.first_stage_parameter_shapes(config)
    return terms.weight_bytes(shapes, dtype, quantization, is_large=metavoice.is_quantisable)


def other_weight_bytes(configs: Configs, size: int = 4) -> int:
    """Count the bytes of the other resident networks: second stage, speaker encoder, vocoder, and EnCodec for
    the diffusion.
    """
    shapes = [
        metavoice.second_stage_parameter_shapes(
            config_of(configs, "metavoice_second_stage", SecondStageConfig)
        ),
        metavoice.speaker_encoder_parameter_shapes(
            config_of(configs, "metavoice_speaker_encoder", SpeakerEncoderConfig)
        ),
        vocos.parameter_shapes(config_of(configs, "vocos", VocosConfig)),
    ]
    if "mbd" in configs:
        shapes.append(encodec.parameter_shapes(config_of(configs, "encodec", EncodecConfig)))
    return size * sum(map(_elements, shapes))


def positions(config: FirstStageConfig, job: MetaVoiceJob) -> int:
    """Count the ids that the cache has room for: the text, its codes and one more; the last is not read."""
    return min(job.text_ids + FIRST_STAGE_BOOKS * job.frames, config.max_position_embeddings - 1)


def _cache(config: FirstStageConfig, job: MetaVoiceJob, size: int) -> Term:
    room, streams = positions(config, job), job.batch * job.rows
    held = 2 * config.num_hidden_layers * streams * config.hidden_size * size * room
    return Term("cache", held, f"keys and values of {room} ids, {counted(streams, 'row')}")


def _activations(config: FirstStageConfig, job: MetaVoiceJob, size: int) -> Term:
    streams, width = job.batch * job.rows, config.hidden_size
    row = max(4, size) * 2 * width + size * max(4 * width, 3 * config.intermediate_size)
    read = streams * job.text_ids * row
    read += scores(streams * config.num_attention_heads * job.text_ids, job.text_ids)
    logits = LOGITS * 4 * streams * config.vocab_size
    return Term("activations", read + logits, "one layer of the text; logits and their candidates")


def _second_stage(config: SecondStageConfig, job: MetaVoiceJob, size: int, backend: str) -> Term:
    window, books = config.max_position_embeddings, len(config.target_vocab_sizes)
    classes = config.target_vocab_sizes[0]
    whole = 2 * books * window * classes * size
    frames = min(job.frames, window)
    drawn = books * frames * classes * (DRAW_DEVICE + DRAW_HOST * (backend in HOST))
    network = size * window * 4 * (config.hidden_size + config.intermediate_size)
    network += min(SCORES, 2 * size * config.num_attention_heads * window**2)
    return Term("second stage", max(network, whole + drawn), f"sampling {books} books of {frames} frames")


def _voice(config: SpeakerEncoderConfig, size: int) -> Term:
    frames = 2 * 100 * VOICE_SECONDS  # slices overlap by half
    held = frames * size * 6 * config.hidden_size
    return Term("voice", held, "gates of the speaker encoder, a minute of speech")


def _decoder(configs: Configs, job: MetaVoiceJob, size: int, backend: str) -> Term:
    if job.decoder == "mbd":
        return _diffusion(configs, job, size, backend)
    config = config_of(configs, "vocos", VocosConfig)
    frames = min(job.frames, CodecPolicy().max_frames)
    why = f"Vocos, a window of {frames + 2 * vocos.decode_lookahead(config)} frames"
    return Term("decoder", size * vocos.live_elements(config, frames), why)


def _diffusion(configs: Configs, job: MetaVoiceJob, size: int, backend: str) -> Term:
    codec, bands = config_of(configs, "encodec", EncodecConfig), config_of(configs, "mbd", MbdConfig)
    length = job.frames * codec.hop_length
    latents = LIVE[backend] * codec.num_filters * length
    largest = 0
    for band in bands.bands:
        shapes = mbd.band_parameter_shapes(band)
        widest = max(
            width * -(-length // band.unet.stride ** (level + 1))
            for level, width in enumerate(band.unet.channels)
        )
        largest = max(largest, _elements(shapes) + (band.unet.depth + LIVE[backend]) * widest)
    matched = EQ_LIVE * EQ_BANDS * length
    return Term(
        "decoder",
        size * max(latents, largest, matched),
        f"EnCodec, then one of {len(bands.bands)} bands with its weights, {job.frames} frames",
    )


def _elements(shapes: Shapes) -> int:
    return sum(math.prod(shape) for shape in shapes.values())


def check_loading(
    configs: Configs,
    *,
    dtype: str,
    backend: str,
    free: int | None,
    quantization: Mapping[str, Any] | None = None,
) -> None:
    """Raise ResourceError, naming a dtype or quantization that fits, unless all weights fit in `free` bytes.

    None (unknown) passes.
    """

    fits.check_loading(
        "MetaVoice",
        partial(estimate, configs, MetaVoiceJob(text_ids=1, frames=1)),
        dtype=dtype,
        backend=backend,
        free=free,
        quantization=quantization,
        requantized=False,
    )


def places_that_fit(configs: Configs, places: int, *, dtype: str, backend: str, free: int | None) -> int:
    """Count the texts, at most `places`, whose batch fits in `free` bytes, with Vocos; None (unknown) is all.

    Raises ResourceError if not even one fits.
    """
    window = config_of(configs, "metavoice", FirstStageConfig).max_position_embeddings

    def job(texts: int) -> MetaVoiceJob:
        rows = most_rows(texts)
        return MetaVoiceJob(text_ids=1, frames=window // FIRST_STAGE_BOOKS, batch=rows, rows=1)

    def takes(texts: int) -> int:
        return estimate(configs, job(texts), dtype=dtype, backend=backend).running

    found = places if free is None else largest(places, lambda texts: takes(texts) <= free)
    if not found:
        fits.check_running(
            "a batch of one text", takes(1), backend=backend, free=free, options=lambda free: {}
        )
    return found


def check_running(
    configs: Configs,
    job: MetaVoiceJob,
    *,
    dtype: str,
    backend: str,
    free: int | None,
) -> None:
    """Raise ResourceError, naming what would fit, unless `job` on a loaded model fits in `free` bytes.

    None (unknown) passes.
    """

    def takes(job: MetaVoiceJob, dtype: str = dtype) -> int:
        return estimate(configs, job, dtype=dtype, backend=backend).running

    def options(free: int) -> dict[str, int]:
        found: dict[str, int] = {}
        batch = largest(job.batch - 1, lambda batch: takes(replace(job, batch=batch)) <= free)
        if batch:
            found[f"a batch_size of {batch}"] = takes(replace(job, batch=batch))
        found |= {f"dtype {name}": takes(job, name) for name in narrower(dtype, halves_of(backend))}
        if job.decoder == "mbd":
            found["decoder vocos"] = takes(replace(job, decoder="vocos"))
        if job.frames > 1:
            half = replace(job, frames=job.frames // 2, text_ids=max(1, job.text_ids // 2))
            found["pieces half as long"] = takes(half)
        return found

    pieces = "a piece" if job.batch == 1 else f"{job.batch} pieces"
    what = f"{pieces} of {job.text_ids} ids and {job.frames} frames"
    fits.check_running(what, takes(job), backend=backend, free=free, options=options)
