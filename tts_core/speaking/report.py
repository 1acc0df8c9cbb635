"""What a caller learns of the progress of a session with stages."""

from __future__ import annotations

from tts_core.pipeline import Callbacks
from tts_core.results import GenerationResult


class StageReport:
    """The stages and steps of a session's requests, as one caller's `progress` and `cancel`.

    expected: seconds of speech of all requests, about.
    """

    def __init__(self, watch: Callbacks | None = None, expected: float | None = None):
        self.watch, self.expected, self.made = watch or Callbacks(None, None), expected, 0.0

    def tell(self, stage: str, steps: int | None = None) -> None:
        """Report that a stage of a request begins. steps: about how many it has. Raises CancelledError."""
        self.watch.tell(stage, self.made, self.expected, steps)

    def check(self) -> None:
        """Count a step. Raises CancelledError."""
        self.watch.check()

    def add(self, part: GenerationResult, stage: str) -> None:
        """Report speech, under the name of a stage."""
        self.made += part.audio_seconds
        self.tell(stage)
