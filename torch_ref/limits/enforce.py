"""Run a model on a CPU as if on a backend: check every operator call against the rules active there.

It emulates documented limits, not the device. Each tensor counts as one of these:
- on the device: existing tensors, those created with device=torch.device(...), and results computed from
these;
- on the host, and not checked: results of .cpu(), .to("cpu") or device="cpu", and results computed only from
these;
- open: tensors created without a device. Their operators are checked, their dtypes only once they are used
together with the device.
Torch does not report torch.from_numpy: its tensors count as on the device (torch.as_tensor is open).
torch.nn.functional.multi_head_attention_forward is checked only by the operators inside it.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakIdKeyDictionary

from torch_ref.limits.backend import ENFORCED, Backend
from torch_ref.limits.rule import Call, GraphCache, LimitError, Rule
from torch_ref.limits.table import by_operator, hits

Location = Literal["device", "host", "open", "none"]
ATTENTION_ARGUMENTS = {
    "query": None,
    "key": None,
    "value": None,
    "attn_mask": None,
    "dropout_p": 0.0,
    "is_causal": False,
    "scale": None,
    "enable_gqa": False,
}


@dataclass
class Watch:
    """The record of a run: number of checked calls, violations per rule, and the first message of each."""

    backend: Backend
    fails: bool
    calls: int = 0
    broken: dict[str, str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    history: GraphCache = field(default_factory=GraphCache)
    locations: WeakIdKeyDictionary = field(
        default_factory=WeakIdKeyDictionary
    )  # of tensors that are not on the device
    located: set[int] = field(default_factory=set)  # id() of every tensor that was ever in `places`
    harmless: set[tuple[torch.dtype, torch.Size]] = field(default_factory=set)  # tensors without a violation
    inside: bool = False  # inside a call that was checked as a whole

    def check(self, op: str, values: dict[str, Any]) -> None:
        """Check one call against the rules. Raises LimitError for the first violation if `fails`."""
        self.calls += 1
        call = Call(op, values, self.backend, self.history)
        for rule, message in hits(call):
            self.report(rule, message)
        if op == "scaled_dot_product_attention":
            self.history.record(call)

    def check_tensors(self, tensors: Iterable[Tensor]) -> None:
        """Check every tensor on the device against the rules for tensors."""
        for x in tensors:
            if (x.dtype, x.shape) in self.harmless or self._location_of(x) != "device":
                continue
            found = list(hits(Call("tensor", {"x": x}, self.backend, self.history)))
            for rule, message in found:
                self.report(rule, message)
            if not found:
                self.harmless.add((x.dtype, x.shape))

    def report(self, rule: Rule, message: str) -> None:
        """Record a violation, and raise it if `fails`."""
        self.broken.setdefault(rule.id, message)
        self.counts[rule.id] += 1
        if self.fails:
            raise LimitError(rule, message, self.backend)

    def location(self, tensors: Iterable[Tensor]) -> Location:
        """Return the place where a call on these tensors runs; "none" without any."""
        found = {self._location_of(x) for x in tensors}
        order: tuple[Location, ...] = ("device", "host", "open")
        for location in order:
            if location in found:
                return location
        return "none"

    def put(self, nest: Any, location: Location) -> None:
        """Set the place of results."""
        for x in tensors_in((nest,)):
            if location == "device":
                self.locations.pop(x, None)
            else:
                self.located.add(id(x))
                self.locations[x] = location

    def _location_of(self, x: Tensor) -> Location:
        # a lookup by weak reference is slow, and most tensors were never in `places`
        return cast("Location", self.locations.get(x, "device")) if id(x) in self.located else "device"


SCALARS = {int, bool, float, type(None), torch.dtype, torch.device, str}


def tensors_in(nests: Iterable[Any]) -> list[Tensor]:
    """List every tensor in nested arguments; runs for every call, in a tenth of tree_leaves' time."""
    found: list[Tensor] = []
    for nest in nests:
        if isinstance(nest, Tensor):
            found.append(nest)
        elif type(nest) in SCALARS:
            continue
        elif isinstance(nest, (list, tuple)):
            found += tensors_in(nest)
        elif isinstance(nest, dict):
            found += tensors_in(nest.values())
    return found


def _attention(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    return {**ATTENTION_ARGUMENTS, **dict(zip(names, args, strict=False)), **kwargs}


def _linear(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    return {"bias": None, **dict(zip(("input", "weight", "bias"), args, strict=False)), **kwargs}


def _lstm(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    # input, state, weights, has_biases, num_layers, dropout, train, bidirectional, batch_first
    layers, bidirectional = args[4], args[7]
    per_direction = len(args[2]) // (layers * (2 if bidirectional else 1))
    return {
        "input": args[0],
        "num_layers": layers,
        "bidirectional": bidirectional,
        "batch_first": args[8],
        "projections": per_direction in (3, 5),
    }


def _self(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    return {"self": args[0]}


# Functions that torch decomposes before an operator mode sees them; the first is one kernel on MPS.
FUNCTIONS: dict[Any, tuple[str, Callable[[tuple[Any, ...], dict[str, Any]], dict[str, Any]]]] = {
    F.scaled_dot_product_attention: ("scaled_dot_product_attention", _attention),
    F.linear: ("linear", _linear),
    torch._VF.lstm: ("lstm", _lstm),  # pyright: ignore[reportAttributeAccessIssue]
    Tensor.imag.__get__: ("imag", _self),  # pyright: ignore[reportAttributeAccessIssue]
}
WHOLE = ("scaled_dot_product_attention", "lstm")
MOVES = (Tensor.to, Tensor.cpu)
COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd


class _Functions(TorchFunctionMode):
    """Mode that sees calls as written: composite functions, and the creation of tensors."""

    def __init__(self, watch: Watch):
        super().__init__()
        self.watch = watch

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        watch = self.watch
        location = watch.location(tensors_in((*args, *kwargs.values())))
        if func in MOVES:
            return self._moved(func, args, kwargs, location)
        name, bind = FUNCTIONS.get(func, ("", _self))
        if name and location != "host" and not watch.inside:
            watch.check(name, bind(args, kwargs))
        outer, watch.inside = watch.inside, watch.inside or name in WHOLE or location == "none"
        try:
            out = func(*args, **kwargs)
        finally:
            watch.inside = outer
        if location == "none":  # a tensor is created
            location = _device_location(kwargs.get("device"))
            watch.put(out, location)
            watch.check_tensors(tensors_in((out,)))
        elif location != "device":
            watch.put(out, location)
        return out

    def _moved(self, func: Any, args: Any, kwargs: Any, location: Location) -> Any:
        """Handle .to and .cpu: return a new alias if torch returns the same tensor, as its place changes."""
        out = func(*args, **kwargs)
        for target in [*args[1:], *kwargs.values(), *(["cpu"] if func is Tensor.cpu else [])]:
            if isinstance(target, (str, torch.device)):
                location = _device_location(target)
            elif isinstance(target, Tensor):
                location = self.watch.location([target])
        out = out.view_as(out) if out is args[0] else out
        self.watch.put(out, location)
        self.watch.check_tensors([out])
        return out


def _device_location(device: Any) -> Location:
    return "open" if device is None else "host" if device == "cpu" and isinstance(device, str) else "device"


class _Operators(TorchDispatchMode):
    """Mode that sees the operators that reach a device."""

    def __init__(self, watch: Watch):
        super().__init__()
        self.watch = watch

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and keeping dynamo out costs more than the rules

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        watch = self.watch
        if _composite(func):  # in inference mode operators are not decomposed
            with self:
                return func._op_dk(COMPOSITE, *args, **kwargs)  # as on the device, not torch's Python version
        given = tensors_in((*args, *kwargs.values()))
        location = watch.location(given)
        seen = location in ("device", "open") and not watch.inside
        name = func.overloadpacket.__name__.removesuffix("_")
        if seen and name in by_operator(watch.backend):
            watch.check(name, _bind(func, args, kwargs))
        if seen and location == "device":
            watch.check_tensors(given)
        out = func(*args, **kwargs)
        if location in ("host", "open"):
            watch.put(out, location)
        elif seen:
            watch.check_tensors(tensors_in((out,)))
        return out


@functools.cache
def _composite(func: Any) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), COMPOSITE)


def _bind(func: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """Bind arguments to the names of the operator's schema, with defaults."""
    declared = func._schema.arguments
    values = {argument.name: argument.default_value for argument in declared if argument.has_default_value()}
    values.update(zip((argument.name for argument in declared), args, strict=False))
    return {**values, **kwargs}


@contextmanager
def _watched(backend: Backend, fails: bool) -> Iterator[Watch]:
    watch = Watch(backend, fails)
    token = ENFORCED.set(backend)
    try:
        with _Functions(watch), _Operators(watch):
            yield watch
    finally:
        ENFORCED.reset(token)


def enforce(backend: Backend) -> Any:
    """Raise LimitError in the context for a call that the backend cannot run, or would compute incorrectly.

    Layers of torch_ref apply the backend's rules inside it, as on the device. Yields the run's Watch.
    """
    return _watched(backend, True)


def observe(backend: Backend) -> Any:
    """Record violations in Watch.broken, without stopping the run. Yields the run's Watch."""
    return _watched(backend, False)
