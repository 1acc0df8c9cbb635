"""How much memory MetaVoice takes on a backend, each part told in bytes; the counterpart of estimate.py.

Its phases follow one another: the voice is read, the first stage fills its cache, the second stage looks
once, the decoder makes the wave. What one held is gone when the next begins, so the largest of them counts.
Sizes come from the tables that the networks are built from; constants are measured by
benchmarks/metavoice_memory.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tts_core.codecs import encodec, mbd, vocos
from tts_core.codecs.policy import CodecPolicy
from tts_core.dia.memory import BYTES, LIBRARIES, LIVE, LOGITS, SCORES, Estimate, Term
from tts_core.metavoice import config as metavoice
from tts_core.metavoice.config import (
    FIRST_STAGE_BOOKS,
    FirstStageConfig,
    SecondStageConfig,
    SpeakerEncoderConfig,
)

Shapes = Mapping[str, tuple[int, ...]]

VOICE_SECONDS = 80  # slices of about so much speech are read at once
# Bytes for each number that the second stage draws from: copies of logits on the device, and the random
# numbers on the host, in double precision for a while
DRAW_DEVICE, DRAW_HOST = 24, 28
EQ_BANDS, EQ_LIVE = 32, 6  # of multi-band diffusion's last step: waves of all bands, and copies of them
HOST = ("torch-cpu", "mlx-cpu", "torch-mps", "mlx-metal")  # whose memory is also the device's


@dataclass(frozen=True)
class MetaVoiceJob:
    """What is to be said, at its longest: ids of text and codec frames of a piece, and pieces at once.

    rows: that the first stage computes for a piece (FirstStageSampling.rows).
    """

    text_ids: int
    frames: int
    batch: int = 1
    rows: int = 2
    decoder: str = "vocos"


class MetaVoiceEstimate(Estimate):
    """Bytes on one backend. codec_weights: of all networks but the first stage; source: the second stage's
    run; codec: the decoder's; prompts: the voice's.
    """

    @property
    def terms(self) -> tuple[Term, ...]:
        """Every line, in the order of a table."""
        kept = self.weights, self.codec_weights
        return (*kept, self.prompts, self.cache, self.activations, self.source, self.codec, self.libraries)

    @property
    def running(self) -> int:
        """What a generation adds at its peak: its phases follow one another."""
        first_stage = self.cache.bytes + self.activations.bytes
        return max(self.prompts.bytes, first_stage, self.source.bytes, self.codec.bytes)


def estimate(
    configs: Mapping[str, Any],
    job: MetaVoiceJob,
    *,
    dtype: str,
    backend: str,
    quantization: Mapping[str, Any] | None = None,
) -> MetaVoiceEstimate:
    """What `job` takes.

    configs: of the model's parts by kind; EnCodec counts where "mbd" is there.  dtype: of the first stage;
    all others have at least float32.  quantization: group_size, bits and mode, as config.json has them; torch
    dequantises when it loads.
    """
    size, wide = BYTES[dtype], max(4, BYTES[dtype])
    first, second = configs["metavoice"], configs["metavoice_second_stage"]
    quantization = None if backend.startswith("torch") else quantization
    return MetaVoiceEstimate(
        backend,
        Term("first stage", weight_bytes(first, dtype, quantization), _named(dtype, quantization)),
        Term("others", other_weight_bytes(configs, wide), f"all other networks, float{8 * wide}"),
        _cache(first, job, size),
        _second_stage(second, job, wide, backend),
        _activations(first, job, size),
        _decoder(configs, job, wide, backend),
        _voice(configs["metavoice_speaker_encoder"], wide),
        Term("libraries", LIBRARIES[backend], "workspaces and caches of BLAS and convolutions"),
    )


def _named(dtype: str, quantization: Mapping[str, Any] | None) -> str:
    if quantization is None:
        return f"its weights, {dtype}"
    bits, group = quantization["bits"], quantization["group_size"]
    return f"its weights, {quantization['mode']}, {bits} bits in groups of {group}; the rest {dtype}"


def weight_bytes(config: FirstStageConfig, dtype: str, quantization: Mapping[str, Any] | None = None) -> int:
    """The first stage's tensors as they lie in memory, with scales and biases where they are quantised."""
    shapes = metavoice.first_stage_parameter_shapes(config)
    return sum(_tensor_bytes(name, shape, dtype, quantization) for name, shape in shapes.items())


def _tensor_bytes(
    name: str, shape: tuple[int, ...], dtype: str, quantization: Mapping[str, Any] | None
) -> int:
    elements, size = math.prod(shape), BYTES[dtype]
    how = (quantization or {}).get(name.removesuffix(".weight"), quantization)  # a layer's own, or all's
    if not how or not metavoice.is_quantisable(name) or shape[-1] % how["group_size"]:
        return size * elements
    per_scale = 2 * size if how["mode"] == "affine" else 1
    return elements * how["bits"] // 8 + elements // how["group_size"] * per_scale


def other_weight_bytes(configs: Mapping[str, Any], size: int = 4) -> int:
    """All other networks that stay: second stage, speaker encoder, vocoder, and EnCodec for the diffusion."""
    shapes: dict[str, Callable[[Any], Shapes]] = {
        "metavoice_second_stage": metavoice.second_stage_parameter_shapes,
        "metavoice_speaker_encoder": metavoice.speaker_encoder_parameter_shapes,
        "vocos": vocos.parameter_shapes,
    }
    if "mbd" in configs:
        shapes["encodec"] = encodec.parameter_shapes
    return sum(_elements(of(configs[kind])) for kind, of in shapes.items()) * size


def positions(config: FirstStageConfig, job: MetaVoiceJob) -> int:
    """Ids that the cache has room for: the text, its codes and one more, of which the last is not read."""
    return min(job.text_ids + FIRST_STAGE_BOOKS * job.frames, config.max_position_embeddings - 1)


def _cache(config: FirstStageConfig, job: MetaVoiceJob, size: int) -> Term:
    room, streams = positions(config, job), job.batch * job.rows
    held = 2 * config.num_hidden_layers * streams * config.hidden_size * size * room
    return Term("cache", held, f"keys and values of {room} ids, {streams} rows")


def _activations(config: FirstStageConfig, job: MetaVoiceJob, size: int) -> Term:
    streams, width = job.batch * job.rows, config.hidden_size
    row = max(4, size) * 2 * width + size * max(4 * width, 3 * config.intermediate_size)
    read = streams * job.text_ids * row
    read += min(SCORES, 8 * streams * config.num_attention_heads * job.text_ids**2)
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
    return Term("second stage", max(network, whole + drawn), f"{books} books of {frames} frames, drawn from")


def _voice(config: SpeakerEncoderConfig, size: int) -> Term:
    frames = 2 * 100 * VOICE_SECONDS  # slices overlap by half
    held = frames * size * 6 * config.hidden_size
    return Term("voice", held, "gates of the speaker encoder, a minute of speech")


def _decoder(configs: Mapping[str, Any], job: MetaVoiceJob, size: int, backend: str) -> Term:
    if job.decoder == "mbd":
        return _diffusion(configs, job, size, backend)
    config = configs["vocos"]
    frames = min(job.frames, CodecPolicy().max_frames) + 2 * vocos.decode_lookahead(config)
    row = 2 * config.intermediate_dim + 4 * config.dim + 2 * config.n_bins * 3 + 3 * config.n_fft
    matrix = 2 * config.n_bins * config.n_fft
    return Term("decoder", size * (frames * row + matrix), f"Vocos, a window of {frames} frames")


def _diffusion(configs: Mapping[str, Any], job: MetaVoiceJob, size: int, backend: str) -> Term:
    codec, bands = configs["encodec"], configs["mbd"]
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
