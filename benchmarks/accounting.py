"""How long the decoder, the codec and the host of a Dia took while it spoke.

On CUDA the decoder's and the codec's times come from events on their streams, so both may run at once; their
kernels wait for each other then, and that counts. Elsewhere all is by the clock, one after the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

Span = tuple[float, float]  # seconds from the start


class Account:
    """Watches the sessions that a pipeline opens from now on. Times are those since `restart`."""

    def __init__(self, pipeline: Any):
        self.pipeline, self.engine = pipeline, pipeline.engine
        self.on_cuda = bool(self.engine.host.overlaps)
        self.decoder: list[Any] = []  # spans, or pairs of events
        self.codec: list[Any] = []
        self.opening: list[Span] = []
        self.steps: list[Span] = []
        self.waits: list[Span] = []
        self.restart()
        opened = pipeline.session

        @wraps(opened)
        def session(*given: Any, **how: Any) -> Any:
            made = self._timed(opened, self.opening)(*given, **how)
            slots = made.turns.slots
            made.step = self._timed(made.step, self.steps)
            made.join = self._timed(made.join, self.steps)
            for name in ("join", "launch"):
                setattr(slots, name, self._decoder(getattr(slots, name)))
            slots.read = self._timed(slots.read, self.waits if self.on_cuda else self.decoder)
            return made

        pipeline.session = session
        if self.on_cuda:
            self._watch_launches()
        else:
            self.engine.decode_windows = self._timed(self.engine.decode_windows, self.codec)

    def restart(self) -> None:
        """Forget all times."""
        for each in (self.decoder, self.codec, self.opening, self.steps, self.waits):
            each.clear()
        self.started = time.perf_counter()
        if self.on_cuda:
            self.base = self._event()
            self.base.record()

    def found(self) -> dict[str, float]:
        """Return seconds.

        decoder, codec: in which each had work of its own.
        both: in which both had.
        host: of the thread in steps and joins, without its waits for the device.
        opening: of running batches, with their captures.
        idle: in which the device had no work, the opening included; elsewhere outside steps and joins.
        """
        whole = time.perf_counter() - self.started
        decoder, codec = self._spans(self.decoder), self._spans(self.codec)
        opening, steps, waits = (_length(_joined([*each])) for each in (self.opening, self.steps, self.waits))
        busy = _length(_joined([*decoder, *codec]))
        both = _length(_joined(decoder)) + _length(_joined(codec)) - busy
        host = steps - waits if self.on_cuda else steps - busy
        times = {
            "whole": whole,
            "decoder": _length(_joined(decoder)),
            "codec": _length(_joined(codec)),
            "both": both,
            "host": host,
            "opening": opening,
            "idle": whole - (busy if self.on_cuda else steps),
        }
        return {name: round(seconds, 3) for name, seconds in times.items()}

    def _timed(self, call: Callable[..., Any], spans: list[Any]) -> Callable[..., Any]:
        @wraps(call)
        def timed(*given: Any, **how: Any) -> Any:
            begun = time.perf_counter()
            try:
                return call(*given, **how)
            finally:
                spans.append((begun, time.perf_counter()))

        return timed

    def _decoder(self, call: Callable[..., Any]) -> Callable[..., Any]:
        return self._marked(call, self.decoder) if self.on_cuda else self._timed(call, self.decoder)

    def _marked(self, call: Callable[..., Any], spans: list[Any]) -> Callable[..., Any]:
        """Put an event on the current stream before a call and after it."""

        @wraps(call)
        def marked(*given: Any, **how: Any) -> Any:
            first, last = self._event(), self._event()
            first.record()
            made = call(*given, **how)
            last.record()
            spans.append((first, last))
            return made

        return marked

    def _watch_launches(self) -> None:
        host = self.engine.host
        launch = host.launch

        def watched(work: Callable[[], Sequence[Any]]) -> Any:
            pending = launch(self._marked(work, self.codec))
            pending.take = self._timed(pending.take, self.waits)
            return pending

        host.launch = watched

    def _event(self) -> Any:
        import torch

        return torch.cuda.Event(enable_timing=True)

    def _spans(self, spans: Sequence[Any]) -> list[Span]:
        if not self.on_cuda:
            return [*spans]
        import torch

        torch.cuda.synchronize()
        return [
            (self.base.elapsed_time(first) / 1e3, self.base.elapsed_time(last) / 1e3)
            for first, last in [*spans]
        ]


def _joined(spans: Sequence[Span]) -> list[Span]:
    """Join spans that overlap."""
    joined: list[Span] = []
    for first, last in sorted(spans):
        if joined and first <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(last, joined[-1][1])
        else:
            joined.append((first, last))
    return joined


def _length(spans: Sequence[Span]) -> float:
    return sum(last - first for first, last in spans)
