"""Contexts that watch how a generation loop reads from the device: one counts, one forbids."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
import torch

from tests.sides import PORT, Side


class Watched:
    """Pass each result of `to_host`, or of another function of a loop's module or host, to `seen`."""

    inside = False

    def __init__(self, owner: Any, seen: Callable[[np.ndarray], None], name: str = "to_host"):
        self.owner, self.seen, self.name, self.original = owner, seen, name, getattr(owner, name)

    def __enter__(self) -> None:
        def to_host(*given: Any) -> np.ndarray:
            Watched.inside = True
            try:
                value = self.original(*given)
            finally:
                Watched.inside = False
            self.seen(value)
            return value

        setattr(self.owner, self.name, to_host)

    def __exit__(self, *_: object) -> None:
        setattr(self.owner, self.name, self.original)


class Forbidden:
    """Make every way to wait for the device raise, except inside a watched `to_host`."""

    TORCH = ("item", "tolist", "numpy", "cpu", "__array__", "__bool__", "__int__", "__float__", "nonzero")
    MLX = ("item", "tolist", "__array__", "__bool__", "__int__", "__float__")

    def __init__(self, side: Side, monkeypatch: pytest.MonkeyPatch, *modules: Any):
        """modules: of a loop, in which NumPy must not read either."""
        self.side, self.patches, self.modules = side, monkeypatch, modules

    def __enter__(self) -> None:
        kind, names = (mx.array, self.MLX) if self.side is PORT else (torch.Tensor, self.TORCH)
        for name in names:
            self.patches.setattr(kind, name, _guarded(name, getattr(kind, name)))
        if self.side is PORT:
            for name in ("eval", "synchronize"):
                self.patches.setattr(mx, name, _guarded(name, getattr(mx, name)))
            for module in self.modules:
                self.patches.setattr(module, "np", _Numpy())
        else:
            self.patches.setattr(torch, "nonzero", _guarded("nonzero", torch.nonzero))

    def __exit__(self, *_: object) -> None:
        self.patches.undo()


def _guarded(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        if not Watched.inside:
            raise AssertionError(f"a read from the device: {name}")
        return original(*args, **kwargs)

    return call


class _Numpy:
    """NumPy that refuses MLX arrays: it reads them by the buffer protocol, without a method call to watch."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(np, name)
        if not callable(value) or isinstance(value, type):
            return value

        def call(*args: Any, **kwargs: Any) -> Any:
            if not Watched.inside and any(isinstance(arg, mx.array) for arg in args):
                raise AssertionError(f"a read from the device: np.{name}")
            return value(*args, **kwargs)

        return call
