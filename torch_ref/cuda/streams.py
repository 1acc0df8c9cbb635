"""Several streams of a codec in one call: their memories are stacked, and taken apart again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


@torch.inference_mode()
def decode_streams(
    decode: Callable[[Tensor, Any], tuple[Tensor, Any]], codes: Tensor, memories: Sequence[Any]
) -> tuple[Tensor, list[Any]]:
    """Decode the next frames of streams that have read equally many. (B, Q, F) → (B, L), and their memories.

    decode: a codec's `decode_piece`.
    memories: of the streams, each of batch 1; None for all at their starts.
    """
    together = None if memories[0] is None else stacked(memories)
    samples, kept = decode(codes, together)
    return samples, [row(kept, place) for place in range(len(memories))]


def stacked(memories: Sequence[Any]) -> Any:
    """Join the tensors of memories along their first axes; numbers must be equal."""
    first = memories[0]
    if isinstance(first, Tensor):
        return torch.cat([*memories])
    if isinstance(first, tuple | list):
        return _like(first, [stacked(parts) for parts in zip(*memories, strict=True)])
    assert all(other == first for other in memories), f"streams at other frames: {memories}"
    return first


def row(memory: Any, place: int) -> Any:
    """Copy a stream's memory, so that the call's is freed."""
    if isinstance(memory, Tensor):
        return memory[place : place + 1].clone()
    if isinstance(memory, tuple | list):
        return _like(memory, [row(part, place) for part in memory])
    return memory


def _like(memory: Any, parts: list[Any]) -> Any:
    """Build a memory of the same kind."""
    return type(memory)(*parts) if hasattr(memory, "_fields") else type(memory)(parts)
