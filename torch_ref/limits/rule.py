"""Rules: operators, a condition on the call, affected versions, effect and remedy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor

from torch_ref.limits.backend import Backend, parse

Effect = Literal["error", "abort", "silent", "fallback", "leak", "slow"]
Evidence = Literal["source", "binary", "thread", "claimed"]


@dataclass(frozen=True)
class Where:
    """Versions that have a limit: first <= version < before; None is open. chips: any if empty."""

    torch: tuple[str | None, str | None] = (None, None)
    macos: tuple[str | None, str | None] = (None, None)
    chips: tuple[str, ...] = ()

    def covers(self, backend: Backend) -> bool:
        """Return True if the limit applies; for unknown versions of a backend the worst is assumed."""
        return (
            _within(backend.torch, self.torch)
            and (backend.macos is None or _within(backend.macos, self.macos))
            and (
                backend.chip is None
                or not self.chips
                or any(_named(chip, backend.chip) for chip in self.chips)
            )
        )

    def __str__(self) -> str:
        parts = [_range("torch", self.torch), _range("macOS", self.macos), " or ".join(self.chips)]
        return ", ".join(part for part in parts if part) or "every version"


def _within(version: str, bounds: tuple[str | None, str | None]) -> bool:
    first, before = bounds
    return (first is None or parse(version) >= parse(first)) and (
        before is None or parse(version) < parse(before)
    )


def _named(chip: str, name: str) -> bool:
    return re.search(rf"\b{re.escape(chip)}\b", name) is not None


def _range(what: str, bounds: tuple[str | None, str | None]) -> str:
    first, before = bounds
    if first is None and before is None:
        return ""
    if first is None:
        return f"{what} before {before}"
    return f"{what} from {first}" + (f", before {before}" if before else "")


@dataclass
class GraphCache:
    """Model of MPSGraph's cache: mask dtype and scale of the first call with each key."""

    first: dict[tuple[Any, ...], tuple[Any, float]] = field(default_factory=dict)

    @staticmethod
    def key(call: Call) -> tuple[Any, ...]:
        """Build torch's key, getTensorsStringKey({q, k, v}) : is_causal : has_mask."""
        shapes = tuple((tuple(call[name].shape), call[name].dtype) for name in ("query", "key", "value"))
        return (*shapes, call["is_causal"], call["attn_mask"] is not None)

    @staticmethod
    def entry(call: Call) -> tuple[Any, float]:
        """Return mask dtype and scale of a call."""
        mask = call["attn_mask"]
        scale = call["scale"] if call["scale"] is not None else call["query"].shape[-1] ** -0.5
        return None if mask is None else mask.dtype, scale

    def record(self, call: Call) -> None:
        """Store the entry of a key's first call."""
        self.first.setdefault(self.key(call), self.entry(call))


@dataclass(frozen=True)
class Call:
    """An operator call: arguments by name. Without history, as in planning, a possible failure counts."""

    op: str
    values: Mapping[str, Any]
    backend: Backend
    history: GraphCache | None = None

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def tensors(self) -> Iterator[Tensor]:
        """Yield every tensor argument."""
        for value in self.values.values():
            if isinstance(value, Tensor):
                yield value
            elif isinstance(value, (list, tuple)):
                yield from (item for item in value if isinstance(item, Tensor))


def always(call: Call) -> bool:
    """Match every call, for an operator that always fails."""
    return True


@dataclass(frozen=True)
class Rule:
    """One limit. `breaks` returns True if a call meets the condition, or a string, the message for that call.

    ops: names of aten operators, of functions that torch composes ("linear", "lstm", "imag", "weight_norm",
    "scaled_dot_product_attention"), or "tensor" for a limit on every tensor, passed as "x". Such a limit may
    depend only on dtype and shape: each pair is checked once.
    condition, breaks, where: by default every call, in every version.
    """

    id: str
    ops: tuple[str, ...]
    effect: Effect
    message: str
    remedy: str
    source: str
    evidence: Evidence
    condition: str = "every call"
    breaks: Callable[[Call], bool | str] = always
    where: tuple[Where, ...] = (Where(),)  # every version
    device: Literal["mps", "cuda"] = "mps"

    def active(self, backend: Backend) -> bool:
        """Return True if the rule applies to this backend."""
        return backend.device == self.device and any(where.covers(backend) for where in self.where)

    def hit(self, call: Call) -> str | None:
        """Return the backend's message if this call violates the rule."""
        found = self.breaks(call)
        return found if isinstance(found, str) else self.message if found else None


MISSING = "The operator 'aten::{}' is not currently implemented for the MPS device."
NO_DTYPE = "Trying to convert {} to the MPS backend but it does not have support for that dtype."


def torch_range(first: str | None, before: str | None = None) -> tuple[Where, ...]:
    """Select releases [first, before) on every macOS."""
    return (Where((first, before)),)


class LimitError(RuntimeError):
    """A call that the emulated backend cannot run, or would compute incorrectly. `rule` is the rule's id."""

    def __init__(self, rule: Rule, message: str, backend: Backend):
        super().__init__(f"{message} [{rule.id}; {backend}; {rule.effect}]: {rule.remedy}")
        self.rule = rule.id
        self.effect = rule.effect
