"""Whole runs of a model's networks on fixed inputs, with which `mlx-port verify --with` compares a port.

A model lists its runs in `tts_core/<model>/probes.py`, in `probes(sources)`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from tts_core.errors import UsageError
from tts_core.nn.ladder import InputSources
from tts_core.nn.layers import Framework


@dataclass(frozen=True)
class Probe:
    """One run of a network.

    kind: of network, for tts_core.models.network.
    inputs: given to a port's call of the same name; NumPy arrays, texts or None.
    run: runs the network of a side. Returns arrays, or lists of them, by name.
    """

    name: str
    kind: str
    inputs: Mapping[str, Any]
    run: Callable[[Any, Framework], Mapping[str, Any]]


def probes(model: str, sources: InputSources) -> list[Probe]:
    """List the runs of a model, in order. Raises UsageError for a model without any."""
    if find_spec(f"tts_core.{model}.probes") is None:
        raise UsageError(f"--with: {model} has no runs for ports; it needs tts_core/{model}/probes.py")
    return importlib.import_module(f"tts_core.{model}.probes").probes(sources)
