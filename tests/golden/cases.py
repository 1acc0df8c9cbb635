"""Golden folders: found when tests are collected; every tensor that is read is recorded.

`MLX_PORT_GOLDEN` names a folder with one subfolder per model (default: tests/data/golden). A case is
described only by its own files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

DEFAULT = Path(__file__).parents[1] / "data" / "golden"
NOT_COMPARED = ("nopad.",)  # the codec's padding-off mode, which no model uses


@dataclass(frozen=True)
class Case:
    """One folder of golden vectors."""

    folder: Path

    def __str__(self) -> str:
        return f"{self.folder.parent.name}/{self.folder.name}"

    @property
    def info(self) -> dict[str, Any]:
        """info.json; a missing key fails with its name."""
        return _Info(json.loads(existing(self.folder / "info.json").read_text()), self.folder / "info.json")

    @property
    def kind(self) -> str:
        """The kind in `info.json`; Dia's folder `sampler` has no such file."""
        is_listed = self.folder.name != "sampler" or (self.folder / "info.json").exists()
        return self.info["kind"] if is_listed else "sampler"

    def path(self, relative: str) -> Path:
        """A file that info.json lists, relative to the case."""
        return existing(self.folder / relative)

    def vectors(self) -> Vectors:
        """The case's own golden file."""
        return Vectors(self.folder / "golden.safetensors")


class Vectors:
    """The tensors of one golden file; remembers which were read."""

    def __init__(self, file: Path):
        self.file = existing(file)
        with safe_open(self.file, "np") as opened:
            self.names = sorted(opened.keys())
            self.metadata: dict[str, str] = opened.metadata() or {}
        self.unread = {name for name in self.names if not name.startswith(NOT_COMPARED)}

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def __getitem__(self, name: str) -> np.ndarray:
        assert name in self.names, f"{self.file}: tensor {name!r} is missing; it has {', '.join(self.names)}"
        self.unread.discard(name)
        with safe_open(self.file, "np") as opened:
            return opened.get_tensor(name)

    def require(self, names: Iterable[str]) -> None:
        """Fail now and name every missing tensor."""
        missing = [name for name in names if name not in self.names]
        assert not missing, f"{self.file}: missing {', '.join(missing)}; it has {', '.join(self.names)}"

    def assert_all_read(self) -> None:
        """Fail if a tensor was never read."""
        assert not self.unread, f"{self.file}: never compared: {', '.join(sorted(self.unread))}"


class _Info(dict):
    def __init__(self, values: dict[str, Any], file: Path):
        super().__init__(values)
        self.file = file

    def __missing__(self, key: str) -> Any:
        raise AssertionError(f"{self.file}: key {key!r} is missing")


def existing(path: Path) -> Path:
    """Return the path; fail with its name if nothing is there."""
    assert path.exists(), f"{path}: listed, but missing"
    return path


def need(side: str) -> None:
    """Skip a test where a framework that it needs is not installed."""
    pytest.importorskip("torch", reason="torch is not installed: it is the oracle of both sides")
    pytest.importorskip("mlx.core" if side == "mlx" else "torch", reason=f"{side} is not installed")


def golden_root() -> Path:
    """The folder of all golden vectors."""
    given = os.environ.get("MLX_PORT_GOLDEN")
    root = Path(given) if given else DEFAULT
    if not root.is_dir():
        raise FileNotFoundError(f"MLX_PORT_GOLDEN: {root} is not a folder; unset it to use {DEFAULT}")
    return root


def discover(model: str, root: Path | None = None) -> list[Case]:
    """The cases of a model's subfolder; an empty list without that subfolder."""
    folder = (root or golden_root()) / model
    if not folder.is_dir():
        return []
    return [Case(path) for path in sorted(folder.iterdir()) if path.is_dir() and _is_case(path)]


def _is_case(folder: Path) -> bool:
    return folder.name == "sampler" or any(
        (folder / name).exists() for name in ("info.json", "golden.safetensors")
    )
