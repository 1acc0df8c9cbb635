"""The interface of every model's pipeline, with progress reports and cancellation."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, runtime_checkable

import numpy as np

from tts_core.errors import CancelledError, UsageError
from tts_core.prompt import Prompt
from tts_core.results import GenerationResult

if TYPE_CHECKING:
    from tts_core.serving.session import Session

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
    """A caller's `progress` and `cancel`, consulted between steps."""

    def __init__(self, progress: Callable[[Progress], None] | None, cancel: threading.Event | None):
        self.progress, self.cancel = progress, cancel
        self._stage: Progress | None = None
        self._step, self._reported = 0, 0.0

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

    def tell(
        self, stage: str, seconds: float, expected: float | None = None, steps: int | None = None
    ) -> None:
        """Check `cancel`, then report to the caller that a stage begins. steps: about how many it has."""
        self.check_cancel()
        self._stage, self._step = Progress(stage, seconds, expected, steps=steps), 0
        self._report(self._stage)

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


@runtime_checkable
class Pipeline(Protocol):
    """A loaded model of either side. `DiaPipeline` and its siblings type their own options exactly."""

    sample_rate: int  # Hz

    def generate(
        self,
        text: str,
        *,
        prompt: PromptLike = None,
        options: Any = None,
        progress: Callable[[Progress], None] | None = None,
        cancel: threading.Event | None = None,
        **changes: Any,
    ) -> GenerationResult:
        """Speak one text.

        prompt: reference speech.
        options: the model's options; `changes` replace some of their fields.
        progress: called as a stage begins, after every part, and a few times a second between.
        cancel: once set, ends the generation with CancelledError.
        Raises UsageError for a text, prompt or option that cannot be used, ResourceError for too little
        memory, GenerationError if a network computes NaN or infinity.
        """
        ...

    def stream(
        self,
        text: str | Iterable[str],
        *,
        prompt: PromptLike = None,
        options: Any = None,
        progress: Callable[[Progress], None] | None = None,
        cancel: threading.Event | None = None,
        **changes: Any,
    ) -> Iterator[GenerationResult]:
        """Speak one text part by part; arguments and errors as in `generate`, raised at the call.

        text: or an iterable of its pieces, spoken while the next one is awaited; errors are raised as they
        come, those of the iterable, too.
        """
        ...

    def generate_batch(
        self,
        texts: Sequence[str],
        *,
        prompts: Any = None,
        options: Any = None,
        progress: Callable[[Progress], None] | None = None,
        cancel: threading.Event | None = None,
        **changes: Any,
    ) -> list[GenerationResult]:
        """Speak several texts, each as `generate` speaks it."""
        ...

    def request(self, text: str, options: Any, prompt: PromptLike) -> Any:
        """Check a caller's arguments without running a network; returns a request for `speak`."""
        ...

    def speak(
        self,
        request: Any,
        *,
        progress: Callable[[Progress], None] | None = None,
        cancel: threading.Event | None = None,
    ) -> Iterator[GenerationResult]:
        """Stream the speech of a request."""
        ...

    def session(self, places: int, *, streamed: bool = True) -> Session:
        """Open a running batch for at most `places` requests. Raises ResourceError for too little memory.

        streamed: False for speech that nobody hears before its end; its parts are then as long as the codec's
        largest windows, which feed less context in all.
        """
        ...
