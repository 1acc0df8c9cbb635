"""The moment before MLX is imported: the BLAS is loaded then, and not by a program that never needs MLX."""

from __future__ import annotations

import sys

MLX = "mlx.core"


class _BeforeMlx:
    """A finder that finds nothing; asked for MLX, it loads the BLAS once."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Load the BLAS if MLX is the module that is searched for."""
        if name == MLX and self in sys.meta_path:
            sys.meta_path.remove(self)
            load()


def load_before_mlx() -> None:
    """Load the BLAS when MLX is imported; at once, with its warning, where that has happened."""
    if MLX in sys.modules:
        load()
    else:
        sys.meta_path.insert(0, _BeforeMlx())


def load() -> None:
    """Load the BLAS."""
    from mlx_port.runtime.blas import load_blas

    load_blas()
