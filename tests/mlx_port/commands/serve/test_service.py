"""The example of a system service in docs/use/service.md, read as systemd reads it."""

from __future__ import annotations

import configparser
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from mlx_port.commands.serve.command import serve
from mlx_port.commands.serve.settings import Settings

PAGE = Path(__file__).parents[4] / "docs/use/service.md"


def example(language: str) -> str:
    [found] = re.findall(rf"(?ms)^```{language}\n(.*?)^```$", PAGE.read_text("utf-8"))
    return found


def check(words: Sequence[str], stop_seconds: float) -> None:
    """Require flags that the command takes, and time to drain."""
    assert words[0].endswith("/mlx-port")
    assert words[1] == "serve"
    serve.make_context("serve", [*words[2:]])
    assert stop_seconds > Settings().drain_seconds


def test_systemd() -> None:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # pyright: ignore[reportAttributeAccessIssue]
    unit.read_string(example("ini"))
    service = unit["Service"]
    check(shlex.split(service["ExecStart"]), float(service["TimeoutStopSec"]))
    assert service["ProtectSystem"] == "strict"
    assert service["PrivateTmp"] == "true", "uploads and slow readers need a temporary folder"
