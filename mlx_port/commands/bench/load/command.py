"""The flags of `mlx-port bench --server`, checked, and its run."""

from __future__ import annotations

import asyncio
import json
import resource
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mlx_port.commands.bench.load.figures import Load
from mlx_port.commands.bench.load.plot import plot
from mlx_port.commands.bench.load.post import read_address
from mlx_port.commands.bench.load.report import report, table
from mlx_port.commands.bench.load.run import TEXTS, LoadSchedule, run
from mlx_port.commands.bench.load.target import LoadTarget
from tts_core.audio.files import check_target
from tts_core.errors import UsageError
from tts_core.printable import one_line
from tts_core.text.checks import check_words

ALONE = 5  # requests one after the other
OWN_FIELDS = ("model", "input", "voice", "response_format")
SOCKETS = 65536  # open at once, if the system lets a process


def load_server(
    server: str,
    *,
    text: str | None,
    texts_file: str | None,
    model: str | None,
    rates: Sequence[float],
    seconds: float,
    seed: int,
    voice: str,
    form: str,
    sample_rate: int | None,
    body: str | None,
    timeout: float,
    api_key: str | None,
    plot_file: str | None,
    tell: Callable[[str], None],
) -> tuple[dict[str, Any], str]:
    """Measure a server under load and draw the plot; return the report as JSON values and as a table."""
    if api_key is not None and not (api_key and api_key.isascii() and api_key.isprintable()):
        raise UsageError("api-key: empty, or with characters that a header cannot carry")
    if plot_file is not None:
        check_target("plot", plot_file, [".svg"])
    if not all(rate > 0 for rate in rates):  # NaN, which click lets pass
        raise UsageError("rates: give numbers of requests a second")
    target = LoadTarget(
        read_address(server), model or "tts-1", voice, form, timeout, sample_rate, api_key, _fields(body)
    )
    texts = TEXTS if texts_file is None else read_texts(texts_file)
    schedule = LoadSchedule(texts if text is None else [text], sorted(rates), seconds, seed, ALONE)
    _allow_sockets()
    found = report(target, schedule, asyncio.run(_measure(target, schedule, tell)))
    if plot_file is not None:
        Path(plot_file).write_text(plot(found), "utf-8")
    return found, table(found)


async def _measure(target: LoadTarget, schedule: LoadSchedule, tell: Callable[[str], None]) -> list[Load]:
    await target.check(schedule.texts[0])  # which also warms the server up
    return await run(target.send, schedule, tell)


def read_texts(file: str) -> list[str]:
    """Read the texts of a file, one a line; of .jsonl, the field `text` of each. Raises UsageError."""
    try:
        written = Path(file).read_text("utf-8").splitlines()
        if file.endswith(".jsonl"):
            written = [json.loads(line)["text"] for line in written if line.strip()]
    except (OSError, ValueError, LookupError, TypeError) as error:
        kind = 'lines like {"text": "Hello."}' if file.endswith(".jsonl") else "lines of UTF-8"
        raise UsageError(f"texts: {file} cannot be read as {kind} ({one_line(str(error))})") from None
    texts = [text for text in written if isinstance(text, str) and text.strip()]
    if not texts:
        raise UsageError(f"texts: {file} has none; write one a line")
    for text in texts:
        check_words("texts", text)
    return texts


def _fields(body: str | None) -> dict[str, Any]:
    """Read further fields of every request. Raises UsageError."""
    if body is None:
        return {}
    try:
        fields = json.loads(body)
    except ValueError as error:
        raise UsageError(f"body: not JSON ({error})") from None
    if not isinstance(fields, dict):
        raise UsageError("body: give a JSON object, such as '{\"stream\": true}'")
    for name in OWN_FIELDS:
        if name in fields:
            raise UsageError(f"body: {name} has a flag of its own")
    return fields


def _allow_sockets() -> None:
    """Let this process have as many connections as its hard limit allows; many a system starts with 256."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = SOCKETS if hard == resource.RLIM_INFINITY else min(hard, SOCKETS)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
