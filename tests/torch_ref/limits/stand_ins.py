"""Fewer runs with the same evidence: the pairs of torch and macOS that no other pair covers."""

from __future__ import annotations

from typing import Literal

import torch

from benchmarks.limits.workloads import pairs
from torch_ref.limits import Backend, active, enforce, longest_convolution, lstm_trusted
from torch_ref.limits.attention import PREFILL_SINCE

Layers = Literal["with LSTM", "without LSTM"]


def rules(backend: Backend, layers: Layers) -> set[str]:
    """Rules of a backend that such a network could break."""
    return {rule.id for rule in active(backend) if layers == "with LSTM" or rule.ops != ("lstm",)}


def path(backend: Backend, layers: Layers) -> tuple[object, ...]:
    """Properties that choose our layers' calls: attention's kernels and rules, longest convolution, LSTM."""
    cpu = torch.device("cpu")
    attention = [rule.id for rule in active(backend) if "scaled_dot_product_attention" in rule.ops]
    with enforce(backend):
        lstm = lstm_trusted(cpu, 1), lstm_trusted(cpu, 2)
        prefill = backend.torch_version >= PREFILL_SINCE
        return prefill, *attention, longest_convolution(cpu), *(lstm if layers == "with LSTM" else ())


def stands_for(backend: Backend, other: Backend, layers: Layers) -> bool:
    """Check if `backend` covers `other`: the same calls, and every rule of `other`."""
    return path(backend, layers) == path(other, layers) and rules(backend, layers) >= rules(other, layers)


def stand_ins(layers: Layers) -> list[Backend]:
    """The fewest pairs that together cover every pair."""
    kept: list[Backend] = []
    for backend in pairs():
        if not any(stands_for(one, backend, layers) for one in kept):
            kept = [one for one in kept if not stands_for(backend, one, layers)] + [backend]
    return kept
