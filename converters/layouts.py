"""Every published layout: how its files are recognised, where its configuration stands, and its map."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from converters.maps import dac_descript, dac_transformers, dia_nari, dia_transformers
from converters.rules import Drop, Rule
from converters.sources import Checkpoint, read_json
from tts_core import dac, dia
from tts_core.converted import FORMAT_VERSION
from tts_core.errors import CheckpointError
from tts_core.sampling import DEFAULTS_0626, DEFAULTS_V01


@dataclass(frozen=True)
class Hints:
    """What the user says of a model beside its files. None: nothing."""

    cross_rope: bool | None = None
    config: Path | None = None  # sizes that no tensor shows


@dataclass(frozen=True)
class Found:
    """A checkpoint and what lies beside it."""

    checkpoint: Checkpoint
    hints: Hints = field(default_factory=Hints)

    @property
    def folder(self) -> Path:
        """Where its files are."""
        return self.checkpoint.files[0].parent

    def json(self, name: str) -> dict[str, Any]:
        """A JSON file beside it; empty where there is none."""
        path = self.folder / name
        return read_json(path) if path.is_file() else {}


def _never_missing(found: Found) -> str | None:
    return None


def _no_documents(found: Found) -> dict[str, str]:
    return {}


@dataclass(frozen=True)
class Layout:
    """One form in which a kind of network is published."""

    kind: str
    names: str  # pattern that the names of its tensors start with
    rules: Callable[[Any], list[Rule | Drop]]  # of the configuration
    read: Callable[[Found], Any]  # the configuration
    missing: Callable[[Found], str | None] = (
        _never_missing  # the file that `read` needs and that is not there
    )
    documents: Callable[[Found], dict[str, str]] = _no_documents  # name → text, as in KINDS
    entries: tuple[str, ...] = ()  # what `read` and `documents` look at in a pickle beside its tensors
    unread: Mapping[str, str] = field(default_factory=dict)  # what else it may hold → why that is left


def _dia_config_missing(found: Found) -> str | None:
    return None if found.json("config.json") else "config.json"


def _read_dia(found: Found) -> dia.DiaConfig:
    generation = found.json("generation_config.json")
    return dia.read_published(found.json("config.json"), generation, cross_rope=found.hints.cross_rope)


def _dac_config_missing(found: Found) -> str | None:
    return None if "kwargs" in found.checkpoint.metadata else _dia_config_missing(found)


def _read_dac(found: Found) -> dac.DacConfig:
    """The checkpoint's own metadata rules over any config.json."""
    if isinstance(found.checkpoint.metadata.get("kwargs"), Mapping):
        return dac.read_descript(found.checkpoint.metadata["kwargs"])
    config = found.json("config.json")
    return dac.read_descript(config) if "encoder_rates" in config else dac.read_transformers(config)


LAYOUTS = {
    "dia_nari": Layout("dia", dia_nari.NAMES, dia_nari.rules, _read_dia, _dia_config_missing),
    "dia_transformers": Layout(
        "dia", dia_transformers.NAMES, dia_transformers.rules, _read_dia, _dia_config_missing
    ),
    "dac_descript": Layout(
        "dac", dac_descript.NAMES, dac_descript.rules, _read_dac, _dac_config_missing, entries=("metadata",)
    ),
    "dac_transformers": Layout(
        "dac", dac_transformers.NAMES, dac_transformers.rules, _read_dac, _dac_config_missing
    ),
}


def recognise(names: Sequence[str], config: Mapping[str, Any]) -> str | None:
    """The layout that most of the tensors' names belong to, and at least half; "mlx" by config.json."""
    written = config.get("weights_layout")
    if written is not None:
        if written != "mlx" or config.get("format_version") != FORMAT_VERSION:
            raise CheckpointError(
                f"config.json: weights_layout {written!r}, format_version {config.get('format_version')!r}: "
                "this folder was made by another version; convert the published model again"
            )
        return "mlx"
    counts = {
        name: sum(bool(re.match(layout.names, each)) for each in names) for name, layout in LAYOUTS.items()
    }
    best = max(counts, key=counts.__getitem__)
    return best if counts[best] and 2 * counts[best] >= len(names) else None


def converted_config(kind: str, read: Any, hints: Hints) -> Any:
    """A converted folder's configuration, with what the user says in place of what stands there."""
    if kind != "dia" or hints.cross_rope in (None, read.cross_rope):
        return read
    sampling = DEFAULTS_V01 if hints.cross_rope else DEFAULTS_0626
    return replace(read, cross_rope=hints.cross_rope, sampling=sampling)
