"""Memory of Dia."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tts_core.codecs import dac
from tts_core.codecs.dac import DacConfig
from tts_core.codecs.memory import dac_call, dac_encode, dac_fed, dac_layout, dac_streams, stream_states
from tts_core.config import Configs, config_of
from tts_core.dia.config import DiaConfig, DiaDecoderConfig, DiaEncoderConfig
from tts_core.dia.pieces import read
from tts_core.memory.fits import Plan
from tts_core.memory.footprint import (
    OVERLAPS,
    Footprint,
    beside_and_after,
    filled,
    footprint,
    gated_row,
    layer,
    passes,
    read_at_once,
    rounded,
    sampling,
)
from tts_core.memory.machine import Machine
from tts_core.memory.weights import held
from tts_core.text.breaks import Paused
from tts_core.text.duration import longest_frames

FIXED = ("torch-cuda", "mlx-cpu", "mlx-metal", "mlx-cuda")  # caches are planned at their full size
NOISE_STEPS = 16  # captured steps whose noise is drawn at once


@dataclass(frozen=True)
class DiaJob:
    """An upper bound on a run: bytes of text and codec frames of each text of a batch."""

    text_bytes: int
    frames: int  # to generate
    prompt_frames: int = 0
    batch: int = 1
    guided: bool = True  # unconditional rows run too

    @property
    def streams(self) -> int:
        """Rows that the decoder runs in parallel."""
        return self.batch * (2 if self.guided else 1)


def dia_footprint(configs: Configs, job: DiaJob, machine: Machine) -> Footprint:
    """Count a job's bytes: prompts are encoded, then the decoder steps, with the codec after or beside."""
    config, codec = config_of(configs, "dia", DiaConfig), config_of(configs, "dac", DacConfig)
    decoder, size, overlaps = config.decoder_config, machine.size, machine.backend in OVERLAPS
    capacity = cache_rows(grid_rows(config, job), machine.backend)
    row = 2 * decoder.num_key_value_heads * decoder.head_dim * size  # of a layer
    whole = decoder.num_hidden_layers * row
    cache = whole * job.streams * capacity
    if machine.backend not in FIXED:  # two copies of a buffer while it grows
        cache += row * job.streams // 2 * capacity
    elif job.prompt_frames:  # and one text's while its prompt is read
        cache += whole * job.streams // job.batch * rounded(1 + job.prompt_frames)
    crossed = decoder.num_hidden_layers * decoder.cross_num_key_value_heads * decoder.cross_head_dim
    text = 2 * job.batch * job.text_bytes * size * (crossed + config.encoder_config.hidden_size)
    states, captured = stream_states(dac.carried(codec), job.batch, machine)
    call = dac_call(codec, dac_fed(codec, job.frames, machine, batch=job.batch), machine)
    copied, shared = dac_streams(codec, job.batch, machine)
    graphs = call + captured + shared if overlaps else 0
    sound = call + graphs + dac_layout(codec, machine) + copied
    beside, after = beside_and_after(machine, sound)
    row_bytes = cache + text + states
    encoder = config.encoder_config
    captured_passes = passes(
        job.batch, job.text_bytes, _row(encoder, size), heads=encoder.num_attention_heads,
        backend=machine.backend,
    )  # fmt: skip
    prompts = dac_encode(codec, job.prompt_frames, machine) if job.prompt_frames else 0
    return footprint(
        machine,
        weights=held(configs, ("dia", "dac"), machine, tables=_tables(config)),
        row=row_bytes,
        stages=(_steps(config, job, machine, capacity) + captured_passes + beside, captured_passes + after),
        freed=(prompts,),
        minute=60 * codec.frame_rate * whole * job.streams,
        sound=sound,
        graphs=graphs + captured_passes,
    )


def _tables(config: DiaConfig) -> int:
    """Count the numbers of the rotary tables."""
    encoder, decoder = config.encoder_config, config.decoder_config
    read, written = encoder.max_position_embeddings, decoder.max_position_embeddings
    return read * encoder.head_dim + written * decoder.head_dim + max(read, written) * decoder.cross_head_dim


def cache_rows(rows: int, backend: str) -> int:
    """Return the capacity, in rows, of a self-attention cache that holds `rows`."""
    return rows if backend in FIXED else rounded(rows)


def grid_rows(config: DiaConfig, job: DiaJob) -> int:
    """Count the rows that the decoder reads: BOS, prompt, frames and the longest delay."""
    rows = 1 + job.prompt_frames + job.frames + config.longest_delay
    return min(rows, config.decoder_config.max_position_embeddings)


def _steps(config: DiaConfig, job: DiaJob, machine: Machine, capacity: int) -> int:
    """Count the bytes of the text's encoder, of the first rows or of a step, and of sampling."""
    encoder, decoder = config.encoder_config, config.decoder_config
    first, text = 1 + job.prompt_frames, job.text_bytes
    heads = max(decoder.num_attention_heads, decoder.cross_num_attention_heads)
    row, encoder_row = _row(decoder, machine.size), _row(encoder, machine.size)
    texts = read_at_once(job.batch, text, machine.backend)
    shared = encoder.num_attention_heads > encoder.num_key_value_heads
    scored = text if shared or machine.backend not in OVERLAPS else 0  # else CUDA's attention keeps no scores
    read = layer(texts, encoder_row, heads=encoder.num_attention_heads, keys=scored)
    start = layer(job.streams * first, row, heads=heads, keys=max(first, text))
    if job.prompt_frames and machine.backend not in FIXED:  # keys and values before they are copied
        position_bytes = (
            2 * decoder.num_hidden_layers * decoder.num_key_value_heads * decoder.head_dim * machine.size
        )
        start += position_bytes * read_at_once(job.batch, job.streams // job.batch * first, machine.backend)
    if job.prompt_frames and machine.backend in OVERLAPS:  # a layer's keys and values of the texts of a pass
        rows = read_at_once(job.batch, job.streams // job.batch * first, machine.backend) // filled(first)
        crossed = decoder.cross_num_key_value_heads * decoder.cross_head_dim
        start += 2 * machine.size * rows * crossed * text
    step = layer(job.streams, row, heads=heads, keys=max(capacity, text))
    logits = decoder.num_channels * decoder.vocab_size
    noise = NOISE_STEPS * 4 * job.batch * logits if machine.backend == "torch-cuda" else 0
    return max(read, start, step) + noise + sampling(job.streams * logits)


def _row(config: DiaEncoderConfig | DiaDecoderConfig, size: int) -> int:
    heads = config.num_attention_heads * config.head_dim
    return gated_row(config.hidden_size, config.intermediate_size, heads, size)


def _longest(configs: Configs, text: Paused | None, seconds: float | None) -> DiaJob:
    config, rate = config_of(configs, "dia", DiaConfig), _frame_rate(configs)
    size, most = config.max_text_bytes, config.max_frames  # a piece and its prompt fill at most one window
    if text is not None:
        pieces = read(text.blanked, None, 0, config, rate, "auto")
        if len(pieces) == 1:
            size, most = len(pieces[0].tokens), min(most, longest_frames(pieces[0].seconds, rate))
    return DiaJob(size, most if seconds is None else min(config.max_frames, math.ceil(seconds * rate)))


def _frame_rate(configs: Configs) -> float:
    return config_of(configs, "dac", DacConfig).frame_rate


def _halves(backend: str) -> tuple[str, ...]:
    """List the half types to suggest: float16 only on CUDA, where a GPU may lack bfloat16; it overflows."""
    return ("bfloat16", "float16") if backend == "torch-cuda" else ("bfloat16",)


PLAN = Plan(dia_footprint, _longest, _frame_rate, FIXED, halves=_halves)
