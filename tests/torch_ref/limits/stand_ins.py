"""Fewer runs that show the same: of all pairs of torch and macOS those that no other stands for."""

from __future__ import annotations

from typing import Literal

import torch

from benchmarks.limits.workloads import pairs
from torch_ref.limits import Backend, active, enforce, longest_convolution, lstm_trusted

Layers = Literal["with LSTM", "without LSTM"]


def rules(backend: Backend, layers: Layers) -> set[str]:
    """Rules that hold there and that such a network could break."""
    return {rule.id for rule in active(backend) if layers == "with LSTM" or rule.ops != ("lstm",)}


def path(backend: Backend, layers: Layers) -> tuple[object, ...]:
    """What decides which calls our layers make there: attention's rules, convolutions' sizes, the LSTM."""
    cpu = torch.device("cpu")
    attention = [rule.id for rule in active(backend) if "scaled_dot_product_attention" in rule.ops]
    with enforce(backend):
        lstm = lstm_trusted(cpu, 1), lstm_trusted(cpu, 2)
        return backend.torch, *attention, longest_convolution(cpu), *(lstm if layers == "with LSTM" else ())


def stands_for(backend: Backend, other: Backend, layers: Layers) -> bool:
    """Whether what breaks a rule of `other` breaks one of `backend` too: the same calls, no rule less."""
    return path(backend, layers) == path(other, layers) and rules(backend, layers) >= rules(other, layers)


def stand_ins(layers: Layers) -> list[Backend]:
    """Some of the pairs, one that stands for every pair among them."""
    kept: list[Backend] = []
    for backend in pairs():
        if not any(stands_for(one, backend, layers) for one in kept):
            kept = [one for one in kept if not stands_for(backend, one, layers)] + [backend]
    return kept
