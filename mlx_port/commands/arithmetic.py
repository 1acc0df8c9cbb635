"""How a backend computes float32 products, and codecs decode, for reports."""

from __future__ import annotations

from typing import Literal


def arithmetic(backend: Literal["mlx", "torch"]) -> str:
    """Return the arithmetic of a backend's default device: "float32" (exact), "tf32" or "unknown"."""
    if backend == "torch":
        from torch_ref.device import choose_device
        from torch_ref.limits import precision

        return precision.arithmetic(choose_device(None))
    from mlx_port.runtime.arithmetic import arithmetic

    return arithmetic()


def codec_precision(backend: Literal["mlx", "torch"], chosen: str) -> str:
    """Return the precision in which codecs decode: MLX has one arithmetic for all networks.

    chosen: of the opened parts.
    """
    return chosen if backend == "torch" else arithmetic(backend)
