"""MARS5 on captured graphs and Triton kernels."""

from __future__ import annotations

from typing import Any

from torch_ref.cuda.mars5.decoder import make_slots
from torch_ref.cuda.mars5.reverse import make_step


def forms(*codecs: Any) -> dict[str, Any]:
    """Return what `torch_ref.mars5.pipeline.compose` takes."""
    return {"make_slots": make_slots, "make_step": make_step}
