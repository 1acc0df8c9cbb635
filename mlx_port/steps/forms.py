"""Forms of a network that are built once."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar, cast

from mlx import nn
from mlx.utils import tree_flatten

from mlx_port.kernels import noise
from mlx_port.kernels.source import on_gpu, passes

Form = TypeVar("Form")


def built_once(network: nn.Module, key: Hashable, build: Callable[[], Form]) -> Form:
    """Return the last result of `build` for this key, or call it if parameters were replaced since."""
    forms: dict[Hashable, tuple[list[Any], Any]] = vars(network).setdefault("_forms", Forms()).by_key
    if key not in forms or not _same(forms[key][0], _parameters(network)):
        form = build()  # may replace parameters by views
        forms[key] = _parameters(network), form
    return cast(Form, forms[key][1])


def try_kernels(build: Callable[[], Any]) -> None:
    """Run the trials of the kernels that texts use, by a form of a network; without effect on a CPU."""
    if on_gpu():
        passes(noise.trial)
        build().try_kernels()


class Forms:
    """Forms by key, each with the parameters it was built from; not a dict, which would be a parameter."""

    def __init__(self) -> None:
        self.by_key: dict[Hashable, tuple[list[Any], Any]] = {}


def _parameters(network: nn.Module) -> list[Any]:
    return [value for _, value in cast(list[tuple[str, Any]], tree_flatten(network.parameters()))]


def _same(before: list[Any], now: list[Any]) -> bool:
    return len(before) == len(now) and all(item is other for item, other in zip(before, now, strict=True))
