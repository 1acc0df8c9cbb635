"""The result of `mlx-port bench` as JSON values, as a table, and as rows of Markdown."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from mlx_port.commands.bench.cases import Case, Subject
from mlx_port.commands.bench.measure import Measured, read_rate
from mlx_port.commands.doctor import size, version
from mlx_port.doctor import facts
from mlx_port.runtime import switches
from tts_core.errors import SpeechError
from tts_core.memory import computer
from tts_core.printable import counted, one_line
from tts_core.speed import step_bytes

FORMAT = 1  # of the JSON
PACKAGES = ("mlx-port", "mlx", "numpy")
COLUMNS = (
    "chip, memory, system",
    "versions",
    "model",
    "weights",
    "texts",
    "settings",
    "ms a frame (real time)",
    "host, ms",
    "first audio, s",
    "RTF",
    "peak, GB",
)


def report(
    subject: Subject, cases: Sequence[Case], measured: Sequence[Measured | SpeechError], runs: int
) -> dict[str, Any]:
    """Collect machine, model and runs as JSON-serializable values; bytes, seconds and bytes a second."""
    rate, mlx = read_rate(), facts()
    return {
        "format": FORMAT,
        "machine": {
            "system": computer.system(),
            "processor": computer.processor(),
            "device": mlx["device"],
            "backend": mlx["backend"],
            "arithmetic": mlx["arithmetic"],
            "memory_total": computer.total_bytes(),
            "memory_free": computer.free_bytes(),
            "read_rate": rate,
            "blas": mlx["blas"]["why"],
        },
        "settings": switches.given(),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
        "model": {
            "name": subject.name,
            "random_weights_of": subject.published,
            "folder": subject.folder and "converted",  # no path of the user's
            "step": subject.speed.unit,
            "steps_per_frame": subject.speed.steps_per_frame,
            "real_time_ms": subject.speed.real_time(subject.configs),
        },
        "runs_per_case": runs,
        "cases": [_case(subject, case, item, rate) for case, item in zip(cases, measured, strict=True)],
    }


def _case(subject: Subject, case: Case, measured: Measured | SpeechError, rate: float) -> dict[str, Any]:
    read = step_bytes(subject.name, subject.configs, case.dtype, case.quantization)
    refused = str(measured) if isinstance(measured, SpeechError) else None
    known: dict[str, Any] = {
        "dtype": case.dtype,
        "bits": case.bits,
        "quantization": case.quantization,
        "batch": case.batch,
        "estimated_memory": case.estimated,
        "step_bytes": read,
        "refused": refused,
    }
    if isinstance(measured, SpeechError):
        return known
    return known | asdict(measured) | {"share_of_read_rate": read / (measured.step_ms / 1000) / rate}


def table(found: dict[str, Any]) -> str:
    """Format a report as text for a terminal."""
    here, model, versions = found["machine"], found["model"], found["versions"]
    what = model["random_weights_of"]
    which = f"{model['name']}, a converted folder" if what is None else f"{what}'s size, random weights"
    lines = [
        f"{here['system']}, {here['processor']}; MLX on {here['backend']} ({here['device']})",
        ", ".join(f"{name} {number or 'not installed'}" for name, number in versions.items()),
        f"memory {size(here['memory_total'])}, read at {here['read_rate'] / 1e9:.1f} GB/s",
        f"{which}; medians of {counted(found['runs_per_case'], 'run')}; "
        f"real time is {model['real_time_ms']:.1f} ms a step ({model['step']})",
        "",
        f"{'dtype':<9}{'bits':>5}{'batch':>6}{'ms/step':>10}{'host ms':>9}{'of memory':>11}{'RTF':>8}"
        f"{'first audio':>13}{'peak':>10}",
    ]
    for case in found["cases"]:
        head = f"{case['dtype']:<9}{case['bits']:>5}{case['batch']:>6}"
        if case["refused"] is not None:
            lines.append(f"{head}  {case['refused']}")
            continue
        lines.append(
            f"{head}{case['step_ms']:>10.2f}{case['host_ms']:>9.2f}{case['share_of_read_rate']:>11.0%}"
            f"{case['real_time_factor']:>8.2f}{case['first_audio_seconds']:>11.2f} s"
            f"{case['peak_memory'] / 1e9:>7.2f} GB"
        )
    lines += [
        "",
        "host ms: processor time of a step in the thread that builds and launches it",
        "of memory: bytes of weights that a step reads, divided by its time and the read rate above",
    ]
    return "\n".join(map(one_line, lines))


def markdown(reports: Sequence[dict[str, Any]]) -> str:
    """Format reports as a Markdown table, a row for each case; one that did not run says why."""
    made = [COLUMNS, ["---"] * len(COLUMNS), *(row for found in reports for row in _rows(found))]
    return "\n".join(
        "| " + " | ".join(one_line(cell).replace("|", "/") for cell in row) + " |" for row in made
    )


def _rows(found: dict[str, Any]) -> list[list[str]]:
    here, model = found["machine"], found["model"]
    versions = ", ".join(f"{name} {found['versions'][name]}" for name in ("mlx-port", "mlx"))
    published = model["random_weights_of"]
    return [
        [
            f"{here['device']}, {size(here['memory_total'])}, {here['system']}",
            versions,
            f"{model['name']}, a converted folder" if published is None else f"{published}, random weights",
            f"{case['bits']} bits, {case['dtype']}",
            str(case["batch"]),
            switches.named(found["settings"]),
            *_figures(case, model),
        ]
        for case in found["cases"]
    ]


def _figures(case: dict[str, Any], model: dict[str, Any]) -> list[str]:
    """Format the last five cells; `-` for what a run that was cut did not show."""
    if case["refused"] is not None:
        return [case["refused"], "-", "-", "-", "-"]
    steps = model["steps_per_frame"]
    speech = (case["first_audio_seconds"], case["real_time_factor"])
    return [
        f"{case['step_ms'] * steps:.1f} ({model['real_time_ms'] * steps:.1f})",
        f"{case['host_ms'] * steps:.1f}",
        *("-" if value is None else f"{value:.2f}" for value in speech),
        f"{case['peak_memory'] / 1e9:.2f}",
    ]
