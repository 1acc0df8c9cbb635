"""Arguments of every model's pipeline: prompts, progress reports and cancellation."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import ParamSpec, Protocol

import numpy as np

from tts_core.errors import CancelledError, UsageError
from tts_core.prompt import Prompt
from tts_core.results import GenerationResult

PromptLike = Prompt | np.ndarray | None  # an array is a model's own form: codes, or a speaker vector


P = ParamSpec("P")  # the arguments of a model's own method after the text
REPORT_SECONDS = 0.2  # between two reports inside a stage


@dataclass(frozen=True)
class Progress:
    """Progress of a generation.

    seconds: of speech so far.
    expected: in total, if known.
    step: of the stage, 0 where it begins.
    steps: about how many it has, if known.
    """

    stage: str
    seconds: float
    expected: float | None = None
    step: int = 0
    steps: int | None = None


class Callbacks:
    """A caller's `progress` and `cancel`, consulted between steps.

    expected: seconds of speech in all, about.
    """

    def __init__(
        self,
        progress: Callable[[Progress], None] | None = None,
        cancel: threading.Event | None = None,
        expected: float | None = None,
    ):
        self.progress, self.cancel, self.expected = progress, cancel, expected
        self._stage: Progress | None = None
        self._step, self._reported, self._made = 0, 0.0, 0.0

    def check(self) -> None:
        """Count a step. Raise CancelledError once the caller has set `cancel`; report now and then."""
        self.check_cancel()
        self._step += 1
        if (
            self.progress is not None
            and self._stage
            and time.perf_counter() - self._reported >= REPORT_SECONDS
        ):
            self._report(replace(self._stage, step=self._step))

    def tell(self, stage: str, steps: int | None = None) -> None:
        """Check `cancel`, then report to the caller that a stage begins. steps: about how many it has."""
        self.check_cancel()
        self._stage, self._step = Progress(stage, self._made, self.expected, steps=steps), 0
        self._report(self._stage)

    def add(self, part: GenerationResult, stage: str) -> None:
        """Report speech, under the name of a stage."""
        self._made += part.audio_seconds
        self.tell(stage)

    def check_cancel(self) -> None:
        """Raise CancelledError once the caller has set `cancel`."""
        if self.cancel is not None and self.cancel.is_set():
            raise CancelledError("generation: cancelled")

    def _report(self, now: Progress) -> None:
        if self.progress is not None:
            self._reported = time.perf_counter()
            self.progress(now)


def check_model(found: str | None, wanted: str) -> None:
    """Raise UsageError unless the files contain the model of a typed `load`."""
    if found != wanted:
        raise UsageError(
            f"model: the files contain {found or 'no whole model'}, not {wanted}; use load() without a model"
        )


class Generates(Protocol[P]):
    """A loaded model, with the types of its own `generate`."""

    def generate(self, text: str, *args: P.args, **kwargs: P.kwargs) -> GenerationResult:
        """Speak one text."""
        ...


class Streams(Protocol[P]):
    """A loaded model, with the types of its own `stream`."""

    def stream(
        self, text: str | Iterable[str], *args: P.args, **kwargs: P.kwargs
    ) -> Iterator[GenerationResult]:
        """Speak one text part by part."""
        ...
