"""Estimate of the time to compute a long text, from a short measurement."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tts_core.errors import CancelledError, SpeechError
from tts_core.pipeline import Pipeline
from tts_core.results import join

LEAST_SECONDS = 30.0  # of speech: less is spoken before a measurement would be worth its time
WARM_UP, TIMED = "Yes.", "This sentence is spoken to measure the speed."


def seconds_to_compute(pipeline: Pipeline, ask: Callable[[str], Any], seconds: float) -> float | None:
    """Estimate the seconds that it takes to compute speech, by speaking a sentence unheard.

    seconds: of speech.  ask: builds the request of a text, with voice and options of the long one. None if
    that sentence fails.
    """
    try:
        list(pipeline.speak(ask(WARM_UP)))
        factor = join(list(pipeline.speak(ask(TIMED)))).real_time_factor
    except CancelledError:
        raise
    except SpeechError:
        return None
    return factor * seconds if math.isfinite(factor) else None
