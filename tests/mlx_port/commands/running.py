"""Runs of `mlx-port` in the process of a test."""

from __future__ import annotations

from typing import Any

from mlx_port.commands import main as cli

SECRET = "Xylophones"  # part of the texts in tests; must never be printed


def run(capsys: Any, *arguments: object) -> tuple[int, str, str]:
    """Run `mlx-port` with these words; return its exit code, stdout and stderr."""
    capsys.readouterr()
    code = cli.run(list(map(str, arguments)))
    out, err = capsys.readouterr()
    assert SECRET not in out + err
    assert "Traceback" not in err
    return code, out, err
