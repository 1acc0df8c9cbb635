"""Work of the host in threads, whose results are given out in the order in which it was begun."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

Made = TypeVar("Made")


class InOrder(Generic[Made]):
    """Results that are there, and those of calls in threads. most: calls under way before `ended` waits."""

    def __init__(self, threads: int, most: int):
        self._threads, self._most = ThreadPoolExecutor(threads), most
        self._results: deque[Future[Made]] = deque()

    def __len__(self) -> int:
        """Count the results that are not given out."""
        return len(self._results)

    def add(self, made: Made) -> None:
        """Append a result that is there."""
        result = Future[Made]()
        result.set_result(made)
        self._results.append(result)

    def begin(self, call: Callable[[], Made]) -> None:
        """Append the result of a call."""
        self._results.append(self._threads.submit(call))

    def ended(self, *, wait: bool) -> list[Made]:
        """Give out the first results, up to one that is not there yet. Raises the error of a call.

        wait: for all.
        """
        ended: list[Made] = []
        while self._results and (wait or len(self._results) > self._most or self._results[0].done()):
            ended.append(self._results.popleft().result())
        return ended
