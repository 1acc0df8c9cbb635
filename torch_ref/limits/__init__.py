"""What each backend cannot do, as data."""

from __future__ import annotations

from torch import Tensor


def attention_hits(query: Tensor, *call: object) -> bool:
    """Whether a rule of the backend that runs `query` forbids this call of its attention kernel."""
    return query.device.type == "mps"
