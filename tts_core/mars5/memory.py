"""Memory that MARS5 needs on a backend, in bytes.

The phases run in sequence: the reference is encoded, the autoregressive network fills its cache, the
diffusion runs over all frames, the vocoder synthesizes the waveform. Sizes come from the tables that the
networks are built from. The number of live tensors is counted in the code of both sides; constants are
measured by benchmarks/mars5_memory.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tts_core import models
from tts_core.codecs import vocos
from tts_core.codecs.encodec import EncodecConfig
from tts_core.codecs.policy import CodecPolicy
from tts_core.codecs.vocos import VocosConfig
from tts_core.config import Configs, config_of
from tts_core.mars5.config import CodecLMConfig, ResidualTransformerConfig
from tts_core.mars5.options import MAX_LEN, Mars5Options
from tts_core.memory import fits, terms
from tts_core.memory.fits import halves_of, narrower
from tts_core.memory.terms import (
    BYTES,
    LIVE,
    LOGITS,
    Estimate,
    Phase,
    Term,
    libraries,
    scores,
    stored_as,
)
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


def estimate(
    configs: Configs,
    job: Mars5Job,
    *,
    dtype: str,
    backend: str,
    quantization: Mapping[str, Any] | None = None,
) -> Estimate:
    """Estimate the memory of `job`.

    configs: of the model's parts by kind.
    dtype: of the two transformers; codec and vocoder use at least float32.
    quantization: group_size, bits and mode, as in config.json; torch dequantizes when it loads.
    """
    size, wide = BYTES[dtype], max(4, BYTES[dtype])
    ar = config_of(configs, "mars5", CodecLMConfig)
    nar = config_of(configs, "mars5_nar", ResidualTransformerConfig)
    quantization = None if backend.startswith("torch") else quantization
    norms = "" if quantization else ", norms float32"
    others = sum(weight_bytes(kind, configs[kind], dtype, quantization) for kind in OTHERS)
    codec, vocoder = config_of(configs, "encodec", EncodecConfig), config_of(configs, "vocos", VocosConfig)
    cache = _cache(ar, job, size)
    kept = (cache,) if job.batch > 1 else ()  # a single text's is freed before the next phase
    ar_weights = weight_bytes("mars5", ar, dtype, quantization)
    return Estimate(
        backend,
        (
            Term("AR", ar_weights, f"its weights, {stored_as(dtype, quantization)}{norms}"),
            Term("others", others, f"weights of NAR (like AR), codec and vocoder, float{8 * wide}"),
            libraries(backend),
        ),
        (
            Phase("voice", (_voice(ar, nar, codec, job, wide, backend), *kept)),
            Phase("AR", (cache, _activations(ar, job, size))),
            Phase("NAR", (_diffusion(nar, job, size, backend), *kept)),
            Phase("vocoder", (_vocoder(vocoder, job, wide), *kept)),
        ),
    )


OTHERS = ("mars5_nar", "encodec", "vocos")


def weight_bytes(kind: str, config: object, dtype: str, quantization: Mapping[str, Any] | None = None) -> int:
    """Count the bytes of the tensors of a network of this kind."""
    known = models.network(kind)
    return terms.weight_bytes(
        known.parameter_shapes(config),
        dtype,
        quantization,
        stays_float32=known.stays_float32,
        is_large=known.is_large,
    )


def _cache(config: CodecLMConfig, job: Mars5Job, size: int) -> Term:
    room = min(config.sliding_window, job.max_len)
    held = 2 * config.num_hidden_layers * config.hidden_size * size * room * job.batch
    tables = 2 * 4 * job.max_len * config.head_dim
    texts = "" if job.batch == 1 else f", {job.batch} texts"
    return Term("cache", held + tables, f"keys and values of {room} ids{texts}")


def _activations(config: CodecLMConfig, job: Mars5Job, size: int) -> Term:
    row = size * max(2 * config.hidden_size + 3 * config.intermediate_size, 6 * config.hidden_size)
    read = (job.prompt_ids + 1) * row + scores(
        config.num_attention_heads * (job.prompt_ids + 1), job.prompt_ids + 1
    )
    return Term(
        "activations",
        read + LOGITS * 4 * config.vocab_size * job.batch,
        f"one layer of {job.prompt_ids} ids of prompt; logits and their candidates",
    )


def _diffusion(config: ResidualTransformerConfig, job: Mars5Job, size: int, backend: str) -> Term:
    streams, wide = 2 if job.guided else 1, max(4, size)
    rows = streams * job.cells
    layer = rows * (wide * 3 * config.hidden_size + size * 3 * config.intermediate_size)
    layer += scores(streams * config.num_attention_heads * job.cells, job.cells)
    drawn = job.cells - job.prompt_frames * job.deep
    logits = wide * drawn * config.n_output_codebooks * config.n_classes
    heads = max(2 * streams, streams + DRAWN) * logits
    why = f"{job.cells} frames, {counted(streams, 'row')}: one layer, or all logits"
    if backend not in AHEAD:
        return Term("NAR", max(layer, heads), why)
    text = job.timesteps * streams * (job.text_ids + 1) * config.hidden_size * size
    return Term("NAR", max(layer, heads) + text, f"{why}; the text of {job.timesteps} timesteps")


def _voice(
    ar: CodecLMConfig,
    nar: ResidualTransformerConfig,
    codec: EncodecConfig,
    job: Mars5Job,
    size: int,
    backend: str,
) -> Term:
    fed = min(job.prompt_frames, 2 * HEARD)
    encoded = size * LIVE[backend] * codec.num_filters * fed * codec.hop_length
    frames, vectors = job.prompt_frames + 1, []
    for config in (ar, nar):
        row = size * 3 * (config.hidden_size + config.speaker_intermediate_size)
        vectors.append(frames * row + scores(config.speaker_heads * frames, frames))
    return Term("voice", max(encoded, *vectors), f"the codec's widest layer, {fed} frames; speaker vectors")


def _vocoder(config: VocosConfig, job: Mars5Job, size: int) -> Term:
    frames = min(job.frames, SPOKEN)
    why = f"Vocos, a window of {frames + 2 * vocos.decode_lookahead(config)} frames"
    return Term("vocoder", size * vocos.live_elements(config, frames), why)


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
        "MARS5",
        partial(estimate, configs, Mars5Job(prompt_ids=1, frames=1)),
        dtype=dtype,
        backend=backend,
        free=free,
        quantization=quantization,
    )


def places_that_fit(configs: Configs, job: Mars5Job, *, dtype: str, backend: str, free: int | None) -> int:
    """Count the texts of a job's batch that fit in `free` bytes together; None (unknown) is all.

    Raises ResourceError if not even one fits.
    """

    def takes(texts: int) -> int:
        return estimate(configs, replace(job, batch=texts), dtype=dtype, backend=backend).running

    found = job.batch if free is None else fits.largest(job.batch, lambda texts: takes(texts) <= free)
    if not found:
        fits.check_running(
            "a batch of one text", takes(1), backend=backend, free=free, options=lambda free: {}
        )
    return found


def diffusion_bytes(configs: Configs, job: Mars5Job, *, dtype: str, backend: str) -> int:
    """Estimate the bytes of a job's diffusion; several that share a call need the sum of theirs."""
    nar = config_of(configs, "mars5_nar", ResidualTransformerConfig)
    return _diffusion(nar, job, BYTES[dtype], backend).bytes


def check_running(configs: Configs, job: Mars5Job, *, dtype: str, backend: str, free: int | None) -> None:
    """Raise ResourceError, naming what would fit, unless `job` on a loaded model fits in `free` bytes.

    None (unknown) passes.
    """

    def takes(job: Mars5Job, dtype: str = dtype) -> int:
        return estimate(configs, job, dtype=dtype, backend=backend).running

    def options(free: int) -> dict[str, int]:
        found: dict[str, int] = {}
        if job.frames > 1:
            found["pieces half as long (piece_seconds)"] = takes(replace(job, frames=job.frames // 2))
        if job.deep:
            ids = max(1, job.prompt_ids - job.prompt_frames)
            found["a shallow clone"] = takes(replace(job, deep=False, prompt_ids=ids))
        if job.guided:
            found["cfg_scale 1"] = takes(replace(job, guided=False))
        if job.max_len > 2 * (job.prompt_ids + job.frames):
            room = job.prompt_ids + job.frames
            found[f"generate_max_len_override {room}"] = takes(replace(job, max_len=room))
        return found | {f"dtype {name}": takes(job, name) for name in narrower(dtype, halves_of(backend))}

    rate = config_of(configs, "encodec", EncodecConfig).frame_rate
    what = f"{job.frames / rate:.1f} s of speech and {job.prompt_frames / rate:.1f} s of reference"
    fits.check_running(what, takes(job), backend=backend, free=free, options=options)
