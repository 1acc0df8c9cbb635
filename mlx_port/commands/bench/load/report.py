"""The result of `mlx-port bench --server` as JSON values and as a table."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from typing import Any

from mlx_port.commands.bench.load.figures import Load, figures
from mlx_port.commands.bench.load.run import LoadSchedule
from mlx_port.commands.bench.load.target import LoadTarget
from mlx_port.commands.doctor import version
from tts_core.memory import computer
from tts_core.printable import one_line

FORMAT = 1  # of the JSON
LATE = 0.01  # seconds; a client that sends later than this is worth a line


def report(target: LoadTarget, schedule: LoadSchedule, loads: Sequence[Load]) -> dict[str, Any]:
    """Collect what was asked and every load's figures as JSON values; seconds."""
    done = [load.rate for load in loads]
    return {
        "format": FORMAT,
        "client": {
            "system": computer.system(),
            "processor": computer.processor(),
            "python": platform.python_version(),
            "mlx-port": version("mlx-port"),
        },
        "server": target.address.url,
        "asked": {
            "model": target.model,
            "voice": target.voice,
            "format": target.form,
            "body": dict(target.more),
            "texts": len(schedule.texts),
            "characters": round(sum(map(len, schedule.texts)) / len(schedule.texts)),
            "seconds": schedule.seconds,
            "seed": schedule.seed,
            "timeout": target.timeout,
        },
        "loads": [figures(load) for load in loads],
        "not_run": [rate for rate in schedule.rates if rate not in done],
    }


def table(found: Mapping[str, Any]) -> str:
    """Format a report as text for a terminal."""
    sent, loads = found["asked"], found["loads"]
    texts = "1 text" if sent["texts"] == 1 else f"{sent['texts']} texts by turns"
    lines = [
        f"{found['server']}, model {sent['model']}, voice {sent['voice']}, {sent['format']}",
        f"{texts}, {sent['characters']} characters on average; {sent['seconds']:g} s of random arrivals at "
        f"each rate, seed {sent['seed']}",
        "",
        f"{'':<29}{'first audio, ms':^24}{'whole, s':^24}{'underruns':^16}{'RTF':>7}{'sound':>8}",
        f"{'a second':>9}{'done':>6}{'errors':>8}{'most':>6}"
        + f"{'p50':>8}{'p95':>8}{'p99':>8}" * 2
        + f"{'number':>8}{'s':>8}{'p50':>7}{'s/s':>8}",
        *(_row(load) for load in loads),
        "",
        *(note for load in loads for note in _notes(load)),
    ]
    if found["not_run"]:
        lines.append(f"not run: {', '.join(f'{rate:g}' for rate in found['not_run'])} a second")
    lines += [
        "most: requests at once. Latencies count from the planned arrival, and are those of whole answers.",
        "first audio: the first sample over -60 dB, in a player that starts with the first sound.",
        "underruns: how often a player that starts with the first audio falls silent, and how long in all.",
        "RTF: whole by seconds of its sound. sound: seconds of speech a second, until the last answer.",
    ]
    return "\n".join(map(one_line, lines)).replace("\n\n\n", "\n\n")


def _row(load: Mapping[str, Any]) -> str:
    failed = load["requests"] - load["done"]
    head = f"{_rate(load):>9}{load['done']:>6}{failed:>8}{load['peak_in_flight']:>6}"
    if not load["done"]:
        return head
    first = "".join(f"{1000 * value:>8.0f}" for value in load["first_audio"].values())
    whole = "".join(f"{value:>8.2f}" for value in load["whole"].values())
    return (
        f"{head}{first}{whole}{load['underruns']:>8}{load['silence']:>8.2f}"
        f"{load['real_time_factor']['p50']:>7.2f}{load['sound_per_second']:>8.1f}"
    )


def _notes(load: Mapping[str, Any]) -> list[str]:
    notes = []
    if load["errors"]:
        notes.append("errors: " + ", ".join(f"{count} of {kind}" for kind, count in load["errors"].items()))
    if load["overload"] is not None:
        notes.append(f"too much: {load['overload']}")
    if load["latest_send"] > LATE:
        notes.append(f"this client sent a request {1000 * load['latest_send']:.0f} ms late, which counts")
    return [f"{_rate(load)}: {note}" for note in notes]


def _rate(load: Mapping[str, Any]) -> str:
    return "alone" if load["rate"] is None else f"{load['rate']:g}"
