"""The report of `mlx-port generate`: the output, its length, time and memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from mlx_port.commands.arithmetic import arithmetic, codec_precision
from mlx_port.commands.collect import Collected
from mlx_port.commands.generate_flags import GenerateFlags
from mlx_port.commands.output import STDOUT
from mlx_port.commands.pace import speed
from tts_core.printable import counted, json_text, one_line


def report(spoken: Collected, flags: GenerateFlags, notes: Sequence[str], *, precision: str) -> None:
    """Print the output, its length, the time and memory of the run, and notes on the request.

    precision: of the codec's decoder, as the model was opened.
    Goes to stderr if stdout takes the speech.
    """
    aside = spoken.target == STDOUT
    if flags.as_json:
        facts = _facts(spoken, flags, precision) | {"notes": list(notes)}
        click.echo(json_text(facts, indent=None), err=aside)
    elif not flags.quiet:
        click.echo("\n".join(map(one_line, [*_lines(spoken, flags), *notes])), err=aside)


def _lines(spoken: Collected, flags: GenerateFlags) -> list[str]:
    result = spoken.result
    cut = ", cut at the limit" if result.finish_reason == "length" else ""
    endless = sum(piece.finish_reason == "length" for piece in result.pieces)
    if endless and flags.options.get("max_seconds") is None:
        cut = f", {endless} of {len(result.pieces)} pieces cut at their limits"
    lines = [f"{_where(spoken) or 'played'}: {result.audio_seconds:.2f} s of speech{cut}, seed {result.seed}"]
    if flags.captions is not None:
        lines += [f"{flags.captions}: {counted(len(result.cues), 'caption')}"]
    lines += [speed(result.real_time_factor)]
    if result.stage_seconds:
        lines += [", ".join(f"{name} {took:.2f} s" for name, took in result.stage_seconds.items())]
    memory = f"peak memory {result.peak_memory_usage / 1e9:.2f} GB"
    if spoken.as_it_came:
        return [*lines, f"first audio after {result.time_to_first_audio:.2f} s, {memory}"]
    return [*lines, memory]


def _where(spoken: Collected) -> str | None:
    return "stdout" if spoken.target == STDOUT else spoken.target and str(spoken.target)


def _facts(spoken: Collected, flags: GenerateFlags, precision: str) -> dict[str, Any]:
    result = spoken.result
    return {
        "output": _where(spoken),
        "captions": flags.captions,
        "model": flags.model,
        "backend": flags.loading.backend,
        "arithmetic": arithmetic(flags.loading.backend),
        "codec_precision": codec_precision(flags.loading.backend, precision),
        "seed": result.seed,
        "audio_seconds": result.audio_seconds,
        "sample_rate": result.sample_rate,
        "samples": result.samples,
        "frames": result.codes.shape[1],
        "token_count": result.token_count,
        "finish_reason": result.finish_reason,
        "real_time_factor": result.real_time_factor,
        "time_to_first_audio": result.time_to_first_audio,
        "processing_time_seconds": result.processing_time_seconds,
        "stage_seconds": dict(result.stage_seconds),
        "peak_memory_usage": result.peak_memory_usage,
    }
