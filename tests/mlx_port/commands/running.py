"""Runs of `mlx-port` in the process of a test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mlx_port.commands import main as cli
from mlx_port.commands import speak as cli_speak
from mlx_port.commands.loading_flags import Loading

SECRET = "Xylophones"  # part of the texts in tests; must never be printed


def run(capsys: Any, *arguments: object) -> tuple[int, str, str]:
    """Run `mlx-port` with these words; return its exit code, stdout and stderr."""
    capsys.readouterr()
    code = cli.run(list(map(str, arguments)))
    out, err = capsys.readouterr()
    assert SECRET not in out + err
    assert "Traceback" not in err
    return code, out, err


def one_line(capsys: Any, code: int, message: str, *arguments: object) -> str:
    """Require `mlx-port` to end with this code and one line that has the message; return the line."""
    found, out, err = run(capsys, *arguments)
    assert (found, out) == (code, ""), err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err
    return err


def refused(capsys: Any, pipeline: Any, code: int, message: str, *arguments: object) -> None:
    """Require `generate` to end with this code and one line, without loading weights or leaving files."""
    before = sorted(path.name for path in Path.cwd().iterdir())
    one_line(capsys, code, message, "generate", *arguments)
    assert pipeline.loaded == []
    assert sorted(path.name for path in Path.cwd().iterdir()) == before


def open_embedded() -> dict[str, Any]:
    """Configurations of the embedded voice's parts."""
    return dict(cli_speak.open_model(None, Loading("torch")).configs)
