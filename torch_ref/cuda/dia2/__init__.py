"""Dia2 captured, on kernels."""

from __future__ import annotations

from typing import Any

from torch_ref.codecs.mimi import Mimi
from torch_ref.cuda.codecs.windows import ReplayedWindows
from torch_ref.cuda.dia2.decoder import make_slots


def forms(codec: Mimi) -> dict[str, Any]:
    """Return what `torch_ref.dia2.pipeline.compose` takes."""
    return {"make_slots": make_slots, "decode_window": ReplayedWindows(codec)}
