"""The interface of a model's running batch, which requests join and leave at a step.

`pipeline.session(places)` opens one. Every call comes from one thread, the one that loaded the model: streams
of MLX belong to a thread. A session owns the memory of its batch, and none of the model's weights.

A request's speech does not depend on who else is served: its codes equal those of the request by itself (up
to near-ties of float32, whose sums a batch may order differently), and its parts are cut at places that
depend on the request only.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, Protocol

from tts_core.results import GenerationResult


@dataclass(frozen=True, eq=False)
class Part:
    """The next part of a request's speech, with its codes, cues and the words that are timed.

    result: as `pipeline.stream` yields it. The last part has a finish_reason; its request has then left.
    """

    key: int
    result: GenerationResult


@dataclass(frozen=True, eq=False)
class Failed:
    """A request that could not be finished, and has left. Its neighbors go on.

    error: a SpeechError, or that of a bug; CancelledError if its own `cancel` was set during a step.
    """

    key: int
    error: Exception


Event = Part | Failed


class Session(Protocol):
    """A model's running batch. Keys are chosen by `join` and are never used twice."""

    @property
    def places(self) -> int:
        """Requests that it can speak at once: those asked for, or fewer where memory is short."""
        ...

    @property
    def running(self) -> int:
        """Requests that have joined and have neither finished, failed nor left."""
        ...

    @property
    def waiting(self) -> bool:
        """True if `step` has nothing to do before the next `join`, `feed` or `end`."""
        ...

    @property
    def promised(self) -> int:
        """Upper bound of the bytes that its running requests may still allocate, by the memory plan."""
        ...

    def fits(self, request: Any, *, promised: int = 0) -> bool:
        """Return True if a request can join now: a place is free, and its memory by the plan.

        promised: bytes that sessions of other models may still allocate.
        Raises ResourceError for a request that does not fit in an empty batch either.
        """
        ...

    def join(self, request: Any, *, more: bool = False, cancel: threading.Event | None = None) -> int:
        """Let a checked request, from `pipeline.request`, begin with the next step; return its key.

        more: its text goes on: `feed` follows, and `end`.
        cancel: set by any thread; looked at by a session whose steps take long. A caller that waits for the
        end of a step calls `leave` instead.
        No network runs. Raises SpeechError, and the batch is as before, if the request cannot begin.
        """
        ...

    def begun(self, key: int) -> bool:
        """Return True once a request has taken part in a step."""
        ...

    def wants(self, key: int) -> bool:
        """Return True if a request can take further text now: always, or once all of it is spoken."""
        ...

    def feed(self, key: int, text: str) -> None:
        """Append text to a request that joined with `more`. Raises UsageError for unreadable text."""
        ...

    def end(self, key: int) -> None:
        """Say that a request's text is complete. A second time does nothing."""
        ...

    def step(self) -> list[Event]:
        """Advance every running request, by as little as the model allows; return what they gave, in order.

        Waits for nothing but the device. A request that fails is an event; an error that is raised ends the
        session, with all its requests. A full memory in a decoder's step is one: the step cannot be tried
        again, for its caches have changed.
        """
        ...

    def leave(self, key: int) -> None:
        """Drop a request; its place and memory are free before the next step. Unknown keys do nothing."""
        ...

    def prepare(self) -> None:
        """Do what the first requests would wait for, besides what `rehearsal` runs; nothing by default."""

    def rehearsal(self) -> Any:
        """Build a short request that runs all of the model's kernels, for a warm-up."""
        ...

    def close(self) -> None:
        """Drop all requests and free the batch's memory. Nothing can join afterwards."""
        ...
