"""Speech models in MLX, native on Apple silicon; also on Linux, CPU and CUDA."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlx_port.api import generate as generate
    from mlx_port.loading import load as load

__all__ = ["generate", "load"]


def __getattr__(name: str) -> Any:
    if name == "generate":
        from mlx_port.api import generate

        return generate
    if name == "load":
        from mlx_port.loading import load

        return load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
