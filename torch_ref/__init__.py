"""The PyTorch reference: every network in plain PyTorch, exact on every device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch_ref.api import generate as generate
    from torch_ref.loading import load as load

__all__ = ["generate", "load"]


def __getattr__(name: str) -> Any:
    if name == "generate":
        from torch_ref.api import generate

        return generate
    if name == "load":
        from torch_ref.loading import load

        return load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
