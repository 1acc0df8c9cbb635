"""Types of the published layouts, whose table is in converters/maps/table.py.

Each file of this folder contains one family of networks, named as in tts_core.models: its maps, the readers
of its configuration and documents, and LAYOUTS, by the layouts' names.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from converters.files.readers import Checkpoint
from converters.rules.assignment import Drop, Rule
from tts_core import models
from tts_core.errors import CheckpointError
from tts_core.files.json_object import read_json
from tts_core.files.regular import Identity, identity, read_text


@dataclass(frozen=True)
class Hints:
    """Facts about a model that a user gives with flags of the same names. None: not given."""

    cross_rope: bool | None = None
    config: Path | None = None  # sizes that the tensors do not show

    def given(self) -> dict[str, Any]:
        """Return the facts that were given."""
        held = {own_field.name: getattr(self, own_field.name) for own_field in fields(self)}
        return {name: value for name, value in held.items() if value is not None}


@dataclass(frozen=True)
class Found:
    """A checkpoint and the files beside it. beside: the state of each file that was read."""

    checkpoint: Checkpoint
    hints: Hints = field(default_factory=Hints)
    beside: dict[Path, Identity] = field(default_factory=dict)
    _read: dict[str, dict[str, Any]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def folder(self) -> Path:
        """Folder of its files."""
        return self.checkpoint.files[0].parent

    def json(self, name: str) -> Mapping[str, Any]:
        """Read a JSON file beside it, once; empty where there is none."""
        path = self.folder / name
        if name not in self._read and os.path.lexists(path):
            self.beside[path] = identity(path)
            self._read[name] = read_json(path)
        return self._read.get(name, {})

    def text(self, name: str) -> str:
        """Read a text beside it, line ends as they are. Raises CheckpointError for a missing one."""
        path = self.folder / name
        try:
            self.beside[path] = identity(path)
            return read_text(path)
        except FileNotFoundError:
            raise CheckpointError(
                f"{path}: a part of the model, but not there; fetch or convert it again"
            ) from None


@dataclass(frozen=True)
class Layout:
    """One form in which a kind of network is published."""

    kind: str
    names: str  # pattern of the beginning of its tensors' names
    rules: Callable[[Any], list[Rule | Drop]]  # from the configuration
    read: Callable[[Found], Any]  # the configuration
    missing: Callable[[Found], str | None] = lambda _: None  # the file that `read` needs
    documents: Callable[[Found], dict[str, str]] = lambda _: {}  # name → text
    entries: tuple[str, ...] = ()  # entries of a pickle that `read` and `documents` use
    unread: Mapping[str, str] = field(default_factory=dict)  # other entries → why they are not used
    # True for an MLX conversion that differs from a converted folder only in what is beside the tensors
    is_converted: Callable[[Checkpoint], bool] = lambda _: False


def canonical(
    kind: str, *drops: Drop, published: Callable[[str], str] = str
) -> Callable[[Any], list[Rule | Drop]]:
    """Build the `rules` of a layout with the canonical names, as `published` changes them."""

    def rules(config: Any) -> list[Rule | Drop]:
        names = models.network(kind).parameter_shapes(config)
        return [*(Rule(published(name), name) for name in names), *drops]

    return rules


def config_where(fits: Callable[[Mapping[str, Any]], object]) -> Callable[[Found], str | None]:
    """Build the `missing` of a layout that needs a config.json that fits."""
    return lambda found: None if fits(found.json("config.json")) else "config.json"
