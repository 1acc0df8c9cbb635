"""Real-time factors: in words, and measured on a short text to estimate the time of a long one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tts_core.errors import CancelledError, SpeechError
from tts_core.results import merge

if TYPE_CHECKING:
    from tts_core.speaking.pipeline import Pipeline

LEAST_SECONDS = 30.0  # of speech: less is spoken before a measurement would be worth its time
WARM_UP, TIMED = "Yes.", "This sentence is spoken to measure the speed."
ABOUT = 1.1  # a factor that nobody hears


def speed(real_time_factor: float) -> str:
    """Describe a real-time factor in words."""
    if not 0 < real_time_factor < math.inf:
        return "of unknown speed"
    if 1 / ABOUT < real_time_factor < ABOUT:
        words = "about real time"
    elif real_time_factor < 1:
        words = f"{1 / real_time_factor:.1f} times faster than real time"
    else:
        words = f"{real_time_factor:.1f} times slower than real time"
    return f"{words} (RTF {real_time_factor:.2f})"


def seconds_to_compute(pipeline: Pipeline, ask: Callable[[str], Any], seconds: float) -> float | None:
    """Estimate the seconds that it takes to compute speech, by speaking a sentence unheard.

    seconds: of speech.  ask: builds the request of a text, with voice and options of the long one. None if
    that sentence fails.
    """
    try:
        list(pipeline.speak(ask(WARM_UP)))
        factor = merge(list(pipeline.speak(ask(TIMED)))).real_time_factor
    except CancelledError:
        raise
    except SpeechError:
        return None
    return factor * seconds if math.isfinite(factor) else None
