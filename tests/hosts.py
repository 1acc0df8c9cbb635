"""Devices without networks: one whose errors come late, as on Metal; one whose results do."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tts_core.codecs.policy import CodecPolicy
from tts_core.memory.machine import Machine


@dataclass(eq=False)
class LateHost:
    """A host. errors: of commands that failed, which no call has raised yet."""

    backend: str = "torch-cuda"
    dtype: str = "float32"
    free: int | None = None
    overlaps: bool = False
    errors: list[Exception] = field(default_factory=list)
    measured: float = 1.0

    def check(self) -> None:
        """Raise the first error, as a call does that starts a command."""
        if self.errors:
            raise self.errors.pop(0)

    def settle(self) -> None:
        """As in Host: raise the first error; the others go with it."""
        errors, self.errors = self.errors, []
        if errors:
            raise errors[0]

    def free_bytes(self) -> int | None:
        return self.free

    def machine(self, policy: CodecPolicy | None = None) -> Machine:
        return Machine(self.dtype, self.backend, self.free, policy=policy)

    def reset_peak(self) -> None:
        """As in Host."""

    def used_bytes(self) -> int | None:
        return None

    def peak_bytes(self) -> int:
        return 0


class LateStream:
    """A host whose codec has a stream of its own, where results come late and in any order.

    begun: launches so far.
    under_way, most: launches that are not taken yet: now, and at most.
    errors: raised by the next launches, one each.
    """

    overlaps = True

    def __init__(self, host: Any, seed: int = 0):
        self.host, self.random = host, random.Random(seed)
        self.begun = self.under_way = self.most = 0
        self.errors: list[Exception] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.host, name)

    def launch(self, work: Callable[[], Sequence[Any]]) -> Late:
        if self.errors:
            raise self.errors.pop(0)
        self.begun += 1
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        return Late(self, self.host.launch(work).take())


class Late:
    """A result that is ready after some looks."""

    def __init__(self, stream: LateStream, made: list[np.ndarray]):
        self.stream, self.made = stream, made

    def ready(self) -> bool:
        return self.stream.random.random() < 0.2

    def take(self) -> list[np.ndarray]:
        self.stream.under_way -= 1
        return self.made
