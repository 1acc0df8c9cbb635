"""Inert classes in place of OmegaConf's, so that torch.load(weights_only=True) reads settings beside tensors.

audiocraft saves its models in this way. omegaconf is not needed, and nothing of it is run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from converters.files.pickle_bounds import CONTAINERS, METADATA, TYPES, VALUES


class Node:
    """An OmegaConf object, with the attributes that the pickle gives it."""

    _FIELD = ""  # the attribute that contains the value

    def __init__(self) -> None:
        self._state: dict[Any, Any] = {}

    def __setstate__(self, state: Any) -> None:
        if type(state) is not dict:
            raise ValueError("attributes that are no dict")
        self._state = state

    def content(self) -> Any:
        """Return its value, without OmegaConf's own records."""
        return getattr(self, "_state", {}).get(self._FIELD)


class Container(Node):
    """A DictConfig or a ListConfig."""

    _FIELD = "_content"


class Value(Node):
    """A number, a text or None."""

    _FIELD = "_val"


class Metadata(Node):
    """OmegaConf's records about a node."""


class Name:
    """A type in OmegaConf's records; it cannot be called."""


def default_dict(*_: object) -> dict[Any, Any]:
    """Return a plain dict in place of a collections.defaultdict."""
    return {}


def stand_ins() -> list[Callable[..., Any] | tuple[Callable[..., Any], str]]:
    """List pairs of an object and the name that it replaces, for torch.serialization.safe_globals."""
    pairs: list[tuple[Any, str]] = [(default_dict, "collections.defaultdict")]
    for kind, names in ((Container, CONTAINERS), (Value, VALUES), (Metadata, METADATA)):
        pairs += [(kind, name.replace(" ", ".")) for name in names]
    pairs += [(Name(), name.replace(" ", ".")) for name in TYPES]
    return list(pairs)
