"""Qwen3-TTS captured, on kernels."""

from __future__ import annotations

from typing import Any

from torch_ref.codecs.qwen3_codec import Qwen3Codec
from torch_ref.cuda.codecs.windows import ReplayedWindows
from torch_ref.cuda.qwen3.decoder import make_slots


def forms(codec: Qwen3Codec) -> dict[str, Any]:
    """Return what `torch_ref.qwen3.pipeline.compose` takes."""
    return {"make_slots": make_slots, "decode_window": ReplayedWindows(codec)}
