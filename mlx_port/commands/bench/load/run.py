"""Requests one after the other, and requests that arrive at random (Poisson) at growing rates.

Arrivals are planned before a rate begins, and no answer delays a request: the load is open-loop, and latency
counts from the planned moment, so that a server which stalls is not asked less ("coordinated omission").
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, cycle
from typing import Any

from mlx_port.commands.bench.load.figures import Answer, Load, overload

TEXTS = (  # 63 characters each, about 4 seconds
    "The morning train was late, so we walked beside the river home.",
    "She wrote a long letter to her brother about the old farmhouse.",
    "A small boat crossed the quiet bay before the sun was fully up.",
    "They baked four loaves of bread and gave two to the neighbours.",
    "Our teacher told us a story of a fox who lived near the school.",
    "He found the lost key under a pile of leaves beside the garden.",
    "The market opens at seven, and the best fruit is gone by eight.",
    "We watched the snow fall on the roofs until the lamps were lit.",
)
ARRIVALS = "tts-bench/poisson/v1"
Send = Callable[[str, float], Coroutine[Any, Any, Answer]]  # a text and its planned moment


@dataclass(frozen=True)
class LoadSchedule:
    """What is asked.

    rates: requests a second, growing.
    seconds: of arrivals at each.
    alone: requests that are asked one after the other before.
    """

    texts: Sequence[str]
    rates: Sequence[float]
    seconds: float
    seed: int
    alone: int


def arrivals(rate: float, seconds: float, seed: int) -> Iterator[float]:
    """Yield moments of arrival, in seconds from the start: a Poisson process.

    The gaps of a seed are those of every rate, scaled, and those that nari-labs' tts_bench 0.1.0 measures by.
    """
    moment = 0.0
    for index in count():
        digest = hashlib.sha256(f"{ARRIVALS}\0{seed}\0measurement\0{index}".encode()).digest()
        uniform = (int.from_bytes(digest[:8], "big") + 0.5) / 2**64
        if (moment := moment - math.log1p(-uniform) / rate) >= seconds:
            return
        yield moment


async def one_by_one(send: Send, schedule: LoadSchedule) -> Load:
    """Ask for speeches one after the other."""
    now, texts = asyncio.get_running_loop().time, cycle(schedule.texts)
    start = now()
    answers = [await send(next(texts), now()) for _ in range(schedule.alone)]
    return Load(None, start, now() - start, answers)


async def at_rate(send: Send, schedule: LoadSchedule, rate: float) -> Load:
    """Ask as planned, whatever the answers do, and wait for the last one."""
    loop, texts = asyncio.get_running_loop(), cycle(schedule.texts)
    tasks, start = [], loop.time()
    async with asyncio.TaskGroup() as group:
        for moment in arrivals(rate, schedule.seconds, schedule.seed):
            await asyncio.sleep(start + moment - loop.time())
            tasks.append(group.create_task(send(next(texts), start + moment)))
    return Load(rate, start, schedule.seconds, [task.result() for task in tasks])


async def run(send: Send, schedule: LoadSchedule, tell: Callable[[str], None]) -> list[Load]:
    """Measure requests alone, then every rate up to the first that is too much for the server, itself
    included. tell: called with a line before each.
    """
    loads: list[Load] = []
    for rate in (None, *schedule.rates):
        if rate is None:
            tell(f"alone: {schedule.alone}, one after the other")
            loads.append(await one_by_one(send, schedule))
        else:
            tell(f"{rate:g} a second: {schedule.seconds:g} s of arrivals, then to the last answer")
            loads.append(await at_rate(send, schedule, rate))
        if overload(loads[-1]) is not None:
            break
    return loads
