"""Memory that Dia needs on a backend: weights, caches, activations and the codec, in bytes.

Sizes come from the tables that the networks are built from (shapes.py, codecs/dac.py). The number of live
tensors is counted in the code of both sides; constants set by a library are measured by benchmarks/memory.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tts_core.codecs import dac
from tts_core.codecs.dac import DacConfig
from tts_core.codecs.dac_memory import copied, decoding, encoding, windows
from tts_core.codecs.memory import stream_states
from tts_core.codecs.policy import smaller as smaller_windows
from tts_core.config import Configs, config_of
from tts_core.dia.config import DiaConfig, DiaDecoderConfig, DiaEncoderConfig
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
    read_at_once,
    rounded,
    with_sound,
)
from tts_core.memory.weights import kept_terms
from tts_core.printable import counted

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

    @staticmethod
    def together(jobs: Sequence[DiaJob]) -> DiaJob:
        """Bound several runs at once, each by the longest."""
        prompt = max(job.prompt_frames for job in jobs)
        return DiaJob(
            text_bytes=max(job.text_bytes for job in jobs),
            frames=max(job.prompt_frames + job.frames for job in jobs) - prompt,
            prompt_frames=prompt,
            batch=sum(job.batch for job in jobs),
            guided=any(job.guided for job in jobs),
        )


def estimate(configs: Configs, job: DiaJob, machine: Machine) -> Estimate:
    """Estimate the memory of `job`. configs: of the model's parts by kind."""
    config, codec = config_of(configs, "dia", DiaConfig), config_of(configs, "dac", DacConfig)
    rows = _cache(config, job, machine), _source(config, job, machine.size)
    steps = Phase("decoder", (*rows, _activations(config, job, machine)))
    calls = decoding(codec, job.frames, machine, batch=job.batch)
    if machine.backend not in OVERLAPS:  # there streams are decoded one after the other
        calls = *calls, *stream_states(dac.carried(codec), job.batch, 0, machine)
    sound = Phase("codec", (*rows, *calls, *copied(codec, machine)))
    phases = with_sound(machine.backend, [steps], sound)
    if job.prompt_frames:
        phases = (*phases, Phase("prompts", (encoding(codec, job.prompt_frames, machine),)))
    held = weight_bytes(config, machine.dtype, machine.held)
    codec_held = weights.weight_bytes("dac", codec, machine.dtype)
    return Estimate(machine.backend, kept_terms(held, codec_held, machine), phases)


def weight_bytes(config: DiaConfig, dtype: str, quantization: Mapping[str, Any] | None = None) -> int:
    """Count the bytes of the network's tensors, and of its rotary tables in float32."""
    encoder, decoder = config.encoder_config, config.decoder_config
    positions = decoder.max_position_embeddings
    tables = encoder.max_position_embeddings * encoder.head_dim + positions * decoder.head_dim
    tables += max(positions, encoder.max_position_embeddings) * decoder.cross_head_dim
    return weights.weight_bytes("dia", config, dtype, quantization) + 4 * tables


def cache_rows(rows: int, backend: str) -> int:
    """Return the capacity, in rows, of a self-attention cache that holds `rows`."""
    return rows if backend in FIXED else rounded(rows)


def grid_rows(config: DiaConfig, job: DiaJob) -> int:
    """Count the rows that the decoder reads: BOS, prompt, frames and the longest delay."""
    return 1 + job.prompt_frames + job.frames + config.longest_delay


def _cache(config: DiaConfig, job: DiaJob, machine: Machine) -> Term:
    decoder, rows = config.decoder_config, grid_rows(config, job)
    capacity = cache_rows(rows, machine.backend)
    layer = 2 * job.streams * decoder.num_key_value_heads * decoder.head_dim * machine.size
    held = decoder.num_hidden_layers * layer * capacity
    why = f"keys and values of {rows} rows, capacity {capacity}, {counted(job.streams, 'stream')}"
    if machine.backend not in FIXED:
        return Term("cache", held + layer // 2 * capacity, f"{why}, two copies of a buffer while it grows")
    first = rounded(1 + job.prompt_frames) if job.prompt_frames else 0
    before = decoder.num_hidden_layers * layer // job.batch * first
    return Term("cache", held + before, f"{why}, and one text's while its prompt is read")


def _source(config: DiaConfig, job: DiaJob, size: int) -> Term:
    decoder = config.decoder_config
    width = decoder.cross_num_key_value_heads * decoder.cross_head_dim
    tokens = job.batch * job.text_bytes
    projected = 2 * decoder.num_hidden_layers * tokens * width * size
    encoded = 2 * tokens * config.encoder_config.hidden_size * size
    return Term("text", projected + encoded, f"cross-attention's keys and values of {tokens} bytes")


def _activations(config: DiaConfig, job: DiaJob, machine: Machine) -> Term:
    encoder, decoder = config.encoder_config, config.decoder_config
    first, text = 1 + job.prompt_frames, job.text_bytes
    heads = max(decoder.num_attention_heads, decoder.cross_num_attention_heads)
    capacity = cache_rows(grid_rows(config, job), machine.backend)
    row, encoder_row = _row(decoder, machine.size), _row(encoder, machine.size)
    texts = read_at_once(job.batch, text, machine.backend)
    read = layer(texts, encoder_row, heads=encoder.num_attention_heads, keys=text)
    start = layer(job.streams * first, row, heads=heads, keys=max(first, text))
    if job.prompt_frames and machine.backend not in FIXED:
        each = 2 * decoder.num_hidden_layers * decoder.num_key_value_heads * decoder.head_dim * machine.size
        start += each * read_at_once(job.batch, job.streams // job.batch * first, machine.backend)
    step = layer(job.streams, row, heads=heads, keys=max(capacity, text))
    used, where = max((read, "the text"), (start, f"the first {first} rows"), (step, "a step"))
    logits = decoder.num_channels * decoder.vocab_size
    if machine.backend == "torch-cuda":
        used += NOISE_STEPS * 4 * job.batch * logits
    return activations(used, where, job.streams * logits)


def _row(config: DiaEncoderConfig | DiaDecoderConfig, size: int) -> int:
    heads = config.num_attention_heads * config.head_dim
    return gated_row(config.hidden_size, config.intermediate_size, heads, size)


def check_loading(configs: Configs, machine: Machine) -> None:
    """Raise ResourceError, naming what fits, unless the weights fit."""
    halves, smallest = _halves(machine.backend), DiaJob(text_bytes=1, frames=1)
    fits.check_loading("the model", partial(estimate, configs), smallest, machine, halves=halves)


def check_running(configs: Configs, job: DiaJob, machine: Machine) -> None:
    """Raise ResourceError, naming what would fit, unless `job` on a loaded model fits."""
    plan, rate = partial(estimate, configs), config_of(configs, "dac", DacConfig).frame_rate

    def smaller() -> Iterator[Option[DiaJob]]:
        if fewer := less(plan, job, machine, "batch"):
            yield f"a batch of {fewer.batch}", fewer, machine
        if shorter := less(plan, job, machine, "frames"):
            seconds = f"{shorter.frames / rate:.1f} s"
            yield f"max_frames {shorter.frames}, {seconds}", shorter, machine
        yield from dtypes(job, machine, _halves(machine.backend))
        for policy in smaller_windows(windows(machine)):
            other = replace(machine, policy=policy)
            if other.fits(plan(job, other).running):
                yield f"codec windows of {policy.max_frames} frames", job, other
                break

    texts = "one text" if job.batch == 1 else f"{job.batch} texts"
    what = f"{texts} of {job.text_bytes} bytes and {job.frames / rate:.1f} s of speech"
    fits.check_running(what, plan, job, machine, smaller)


def fitting_batch(configs: Configs, job: DiaJob, machine: Machine) -> int:
    """Count the texts of a job's batch that fit together; at least one."""
    return fits.fitting(partial(estimate, configs), job, machine)


def _halves(backend: str) -> tuple[str, ...]:
    """List the half types to suggest: float16 only on CUDA, where a GPU may lack bfloat16; it overflows."""
    return ("bfloat16", "float16") if backend == "torch-cuda" else ("bfloat16",)
