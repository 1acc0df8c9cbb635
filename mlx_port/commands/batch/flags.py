"""Flags of one call of `mlx-port batch`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from mlx_port.commands.loading_flags import Loading

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class BatchFlags:
    """Flags of one call as given; None is the default. options: the model's options by name."""

    source: Path
    out: Path
    model: str | None
    loading: Loading
    voices: Path | None
    form: str
    captions: str | None
    places: int
    limit: int | None
    shard: str | None
    engine: Literal["local", "ray"]
    workers: int | None
    gpus: float
    reject: tuple[str, ...]
    retries: int | None
    judges: int | None
    dry_run: bool
    quiet: bool
    options: dict[str, Any]
