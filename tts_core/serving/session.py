"""Events of a model's running batch (tts_core.speaking.session)."""

from __future__ import annotations

from dataclasses import dataclass

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
