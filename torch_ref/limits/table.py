"""The table of all rules, and its queries for layers, tests and commands."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import torch
from torch import Tensor

from torch_ref.limits import attention, convolution, matmul, selection, tensors, transforms
from torch_ref.limits.backend import Backend, backend_of
from torch_ref.limits.rule import Call, Rule

RULES: tuple[Rule, ...] = (
    *convolution.RULES,
    *attention.RULES,
    *matmul.RULES,
    *transforms.RULES,
    *selection.RULES,
    *tensors.RULES,
)


@functools.cache
def active(backend: Backend) -> tuple[Rule, ...]:
    """List the rules that apply to a backend, in the order of the table."""
    return tuple(rule for rule in RULES if rule.active(backend))


@functools.cache
def by_operator(backend: Backend) -> dict[str, tuple[Rule, ...]]:
    """Group active rules by operator."""
    found: dict[str, list[Rule]] = {}
    for rule in active(backend):
        for op in rule.ops:
            found.setdefault(op, []).append(rule)
    return {op: tuple(rules) for op, rules in found.items()}


def hits(call: Call) -> Iterator[tuple[Rule, str]]:
    """Yield active rules that a call violates, with the backend's message."""
    for rule in by_operator(call.backend).get(call.op, ()):
        message = rule.hit(call)
        if message is not None:
            yield rule, message


def attention_trusted(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> bool:
    """Return True if no rule of `query`'s backend may be violated by this call of torch's attention."""
    backend = backend_of(query.device)
    if backend is None:
        return True
    values = {
        "query": query,
        "key": key,
        "value": value,
        "attn_mask": attn_mask,
        "dropout_p": dropout_p,
        "is_causal": is_causal,
        "scale": scale,
        "enable_gqa": enable_gqa,
    }
    return next(hits(Call("scaled_dot_product_attention", values, backend)), None) is None


def longest_convolution(device: torch.device) -> int | None:
    """Return the largest size of a convolution on a device; None without a limit."""
    backend = backend_of(device)
    watched = {"conv-65536", "conv-transpose-65536", "conv-weight-grad-65536"}
    if backend is None or not any(rule.id in watched for rule in active(backend)):
        return None
    return convolution.LONGEST


def lstm_trusted(device: torch.device, layers: int) -> bool:
    """Return True if no rule forbids an LSTM of this many layers, one direction, time first."""
    backend = backend_of(device)
    values = {"num_layers": layers, "bidirectional": False, "batch_first": False, "projections": False}
    return backend is None or next(hits(Call("lstm", values, backend)), None) is None
