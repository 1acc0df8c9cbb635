"""Flags of one call of `mlx-port generate`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlx_port.commands.loading_flags import Loading


@dataclass(frozen=True)
class GenerateFlags:
    """Flags of one call as given; None is the default.

    options: values of the model's options by name.
    """

    text: str | None
    model: str | None
    loading: Loading
    check: bool
    voice: str | None
    ref_audio: tuple[str, ...]
    ref_text: tuple[str, ...]
    options: dict[str, Any]
    output: str | None
    form: str | None
    captions: str | None
    play: bool
    stream: bool
    show_pieces: bool
    as_json: bool
    quiet: bool
