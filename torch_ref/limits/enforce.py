"""Run a model on a CPU as if on a backend: every operator call is held against the rules that are active there.

It is an emulation of documented limits, not of the device. Tensors that exist before, and those made from them, count as on
the device; so do those made with device=torch.device(...). What is made without a device, with device="cpu", or by .cpu(),
is on the host and is not watched. torch.nn.functional.multi_head_attention_forward is seen by the operators below it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

from torch_ref.limits.backend import ENFORCED, Backend
from torch_ref.limits.rule import Call, GraphCache, LimitError, Rule
from torch_ref.limits.table import by_operator, hits

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
    """What a run did: operator calls held against the rules, and the first message of each rule that was broken."""

    backend: Backend
    fails: bool
    calls: int = 0
    broken: dict[str, str] = field(default_factory=dict)
    history: GraphCache = field(default_factory=GraphCache)
    host: WeakIdKeyDictionary = field(default_factory=WeakIdKeyDictionary)
    inside: bool = False  # within a call that was judged as a whole

    def check(self, op: str, values: dict[str, Any]) -> None:
        """Hold one call against the rules. Raises LimitError for the first that it breaks, if so told."""
        self.calls += 1
        call = Call(op, values, self.backend, self.history)
        for rule, message in hits(call):
            self.report(rule, message)
        if op == "scaled_dot_product_attention":
            self.history.record(call)

    def check_tensors(self, *nests: Any) -> None:
        """Hold every tensor on the device against the rules for tensors."""
        for x in tree_leaves(nests):
            if isinstance(x, Tensor) and x not in self.host:
                for rule, message in hits(Call("tensor", {"x": x}, self.backend, self.history)):
                    self.report(rule, message)

    def report(self, rule: Rule, message: str) -> None:
        """Note a broken rule, and raise it if so told."""
        self.broken.setdefault(rule.id, message)
        if self.fails:
            raise LimitError(rule, message, self.backend)

    def on_host(self, *nests: Any) -> bool:
        """Whether there are tensors and all of them are on the host."""
        found = [x for x in tree_leaves(nests) if isinstance(x, Tensor)]
        return bool(found) and all(x in self.host for x in found)


def _attention(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    return {**ATTENTION_ARGUMENTS, **dict(zip(names, args)), **kwargs}


def _linear(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    return {"bias": None, **dict(zip(("input", "weight", "bias"), args)), **kwargs}


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


# Functions that torch takes apart before an operator mode sees them; the first is one kernel on MPS.
FUNCTIONS: dict[Any, tuple[str, Callable[[tuple[Any, ...], dict[str, Any]], dict[str, Any]]]] = {
    F.scaled_dot_product_attention: ("scaled_dot_product_attention", _attention),
    F.linear: ("linear", _linear),
    torch._VF.lstm: ("lstm", _lstm),  # pyright: ignore[reportAttributeAccessIssue]
    Tensor.imag.__get__: ("imag", _self),
}
WHOLE = ("scaled_dot_product_attention", "lstm")
MOVES = (Tensor.to, Tensor.cpu)


class _Functions(TorchFunctionMode):
    """Sees calls as they are written: composite functions, and where tensors are made."""

    def __init__(self, watch: Watch):
        super().__init__()
        self.watch = watch

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        watch = self.watch
        if func in MOVES:
            return self._moved(func, args, kwargs)
        host = watch.on_host(args, kwargs)
        name, bind = FUNCTIONS.get(func, ("", _self))
        if name and not host and not watch.inside:
            watch.check(name, bind(args, kwargs))
        outer, watch.inside = watch.inside, watch.inside or name in WHOLE
        try:
            out = func(*args, **kwargs)
        finally:
            watch.inside = outer
        if not any(isinstance(x, Tensor) for x in tree_leaves((args, kwargs))):  # a tensor is made
            host = not isinstance(kwargs.get("device"), torch.device)
            if not host:
                watch.check_tensors(out)
        if host:
            self._mark(out)
        return out

    def _moved(self, func: Any, args: Any, kwargs: Any) -> Any:
        """.to and .cpu: a new alias where torch returns the tensor itself, since it changes sides here."""
        targets = [*args[1:], *kwargs.values()]
        named = [x for x in targets if isinstance(x, (torch.device, Tensor))]
        to_host = func is Tensor.cpu or "cpu" in targets
        out = func(*args, **kwargs)
        if not to_host and not named:  # a dtype alone
            if args[0] in self.watch.host:
                self._mark(out)
            return out
        out = out.view_as(out) if out is args[0] else out
        if to_host or (isinstance(named[0], Tensor) and named[0] in self.watch.host):
            self._mark(out)
        else:
            self.watch.host.pop(out, None)
            self.watch.check_tensors(out)
        return out

    def _mark(self, nest: Any) -> None:
        for x in tree_leaves(nest):
            if isinstance(x, Tensor):
                self.watch.host[x] = True


class _Operators(TorchDispatchMode):
    """Sees the operators that reach a device."""

    def __init__(self, watch: Watch):
        super().__init__()
        self.watch = watch

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        watch = self.watch
        if func._can_decompose() and torch._C._dispatch_has_kernel_for_dispatch_key(
            func.name(), "CompositeImplicitAutograd"
        ):  # in inference mode operators arrive whole
            with self:
                out = func.decompose(*args, **kwargs)
            if out is not NotImplemented:
                return out
        host = watch.on_host(args, kwargs)
        made = not any(isinstance(x, Tensor) for x in tree_leaves((args, kwargs)))
        if not host and not watch.inside and not made:
            name = func.overloadpacket.__name__.removesuffix("_")
            name = func.overloadpacket.__name__ if name == "" else name
            if name in by_operator(watch.backend):
                watch.check(name, _bind(func, args, kwargs))
            watch.check_tensors(args, kwargs)
        out = func(*args, **kwargs)
        if host:
            for x in tree_leaves(out):
                if isinstance(x, Tensor):
                    watch.host[x] = True
        elif not watch.inside and not made:
            watch.check_tensors(out)
        return out


def _bind(func: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """Arguments by the names of the operator's schema, defaults filled in."""
    declared = func._schema.arguments
    values = {argument.name: argument.default_value for argument in declared if argument.has_default_value()}
    values.update(zip((argument.name for argument in declared), args))
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
    """Context in which a call that the backend could not run, or would run wrongly, raises LimitError.

    Layers of torch_ref take the backend's rules for their own inside it, as they would on the device.
    Gives the Watch of the run.
    """
    return _watched(backend, True)


def observe(backend: Backend) -> Any:
    """The same, but broken rules are noted in Watch.broken and the run goes on."""
    return _watched(backend, False)
