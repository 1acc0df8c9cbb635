"""Requests that arrive at a session at random times; some of them leave early."""

from __future__ import annotations

from typing import Any

import numpy as np

from tts_core.results import GenerationResult, merge
from tts_core.serving.session import Part


def serve(
    session: Any, requests: list[Any], *, seed: int, leaving: float = 0.0
) -> dict[int, GenerationResult]:
    """Speak requests, each joining at a step by chance as soon as it fits.

    leaving: probability, a step, that a request leaves. Returns what the others said, by place in `requests`.
    """
    random, waiting = np.random.default_rng(seed), list(enumerate(requests))
    running, parts, spoken = dict[int, int](), dict[int, list[GenerationResult]](), {}
    while waiting or running:
        if waiting and random.random() < 0.4 and session.fits(waiting[0][1]):
            place, request = waiting.pop(0)
            running[session.join(request)] = place
            assert session.running == len(running)
        for key in [key for key in running if random.random() < leaving]:
            session.leave(key)
            del running[key]
        for event in session.step():
            assert isinstance(event, Part), event
            parts.setdefault(event.key, []).append(event.result)
            if event.result.finish_reason is not None:
                spoken[running.pop(event.key)] = merge(parts.pop(event.key))
        assert session.running == len(running)
        assert session.waiting == (not running)
    assert session.step() == []
    assert session.promised == 0
    return spoken
