"""The pipeline of every model: requests through its sessions. A model's own only states types."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any, ClassVar

import numpy as np

from tts_core.errors import UsageError
from tts_core.models import Model
from tts_core.nn.calls import exclusive
from tts_core.options import chosen
from tts_core.pipeline import Callbacks, Progress, PromptLike
from tts_core.results import GenerationResult, merge
from tts_core.speaking.doors import checked_fragments, log, sentences, spoken
from tts_core.speaking.live import LiveText
from tts_core.speaking.session import SpeechSession

Tell = Callable[[Progress], None]


class Pipeline:
    """A loaded model of either side. Build it with `load`. `DiaPipeline` and others type their options.

    model: its facts and functions.
    engine: its networks, a Net.
    config, codec_config: of the network and its codec.
    configs: of all networks, by kind.
    facts: by which its requests are checked.
    """

    model: ClassVar[Model]
    engine: Any

    def __init__(self, engine: Any):
        self.engine = engine
        self.sample_rate = engine.sample_rate
        self.config, self.codec_config, self.configs = engine.config, engine.codec_config, engine.configs
        self.facts = engine.facts

    def generate(
        self,
        text: str,
        *,
        prompt: PromptLike = None,
        options: Any = None,
        progress: Tell | None = None,
        cancel: threading.Event | None = None,
        **changes: Any,
    ) -> GenerationResult:
        """Speak one text and return all of `stream` as one result, with its arguments and errors.

        Pieces of a long text that do not depend on each other run at once, as many as fit in memory; with a
        limit of all frames in order. The codec's windows may be longer than a stream's: samples are equal up
        to rounding.
        """
        requests = self.request(text, chosen(self.model.options, options, changes), prompt)
        log(self.model.name, requests)
        [spoken] = self._together([requests], Callbacks(progress, cancel, requests.seconds))
        return spoken

    def stream(
        self,
        text: str | Iterable[str],
        *,
        prompt: PromptLike = None,
        options: Any = None,
        progress: Tell | None = None,
        cancel: threading.Event | None = None,
        **changes: Any,
    ) -> Iterator[GenerationResult]:
        """Speak one text part by part, each as soon as its sound is known.

        text: or an iterable of its pieces, spoken while the next one is awaited: a model that reads while it
        speaks takes words, others take sentences as they become complete.
        prompt: the voice, as the model takes it.
        options: settings; `changes` replace some of their fields. Seeds of the pieces of a long text are
        derived from the first.
        progress: called as a stage begins and after every part.
        cancel: once set, the stream ends with CancelledError.
        Raises UsageError for a text, voice or value that cannot be used and ResourceError for too little
        memory, both at the call, before any network runs; for pieces of text, as they come.
        """
        given = chosen(self.model.options, options, changes)
        if isinstance(text, str):
            return self.speak(self.request(text, given, prompt), progress=progress, cancel=cancel)
        pieces, live = checked_fragments(text), self.facts.live(None, given, prompt)
        if not isinstance(live, LiveText):
            return self.speak(live, progress=progress, cancel=cancel, text=pieces)
        return self._sentences(live, Callbacks(progress, cancel, live.seconds), sentences(pieces, cancel))

    def request(self, text: str, options: Any, prompt: PromptLike = None) -> Any:
        """Check a caller's arguments without running a network. Raises UsageError."""
        return self.facts.request(text, options, prompt)

    def speak(
        self,
        request: Any,
        *,
        progress: Tell | None = None,
        cancel: threading.Event | None = None,
        text: Iterator[str] | None = None,
    ) -> Iterator[GenerationResult]:
        """Stream the speech of a request. text: that is still to come.

        Raises ResourceError, at the call, for too little memory.
        """
        log(self.model.name, request)
        self.engine.check(job := request.job())
        return self._parts(request, job, Callbacks(progress, cancel, request.seconds), text)

    def session(self, places: int, *, streamed: bool = True) -> SpeechSession:
        """Open a running batch for at most `places` requests. Raises ResourceError for too little memory.

        streamed: False for speech that nobody hears before its end; its parts are then as long as the codec's
        largest windows, which feed less context in all.
        """
        return self.opened(places, None, streamed=streamed)

    def generate_batch(
        self,
        texts: Sequence[str],
        *,
        prompts: PromptLike | Sequence[PromptLike] = None,
        options: Any = None,
        progress: Tell | None = None,
        cancel: threading.Event | None = None,
        batch_size: int | None = None,
        **changes: Any,
    ) -> list[GenerationResult]:
        """Speak several texts in one running batch; each has the codes that it has by itself.

        prompts, seed, max_frames and noise: one for all, or one per text. All texts are checked before the
        first is spoken. The times in a result are those until its text was spoken.
        batch_size: pieces at once, at most; None for as many as fit.
        Raises UsageError, with the text's position, and ResourceError for too little memory.
        """
        given = chosen(self.model.options, options, changes)
        requests = self.facts.requests(texts, given, prompts)
        report = Callbacks(progress, cancel, sum(request.seconds for request in requests))
        return self._together(requests, report, batch_size)

    def generate_codes(
        self,
        texts: Sequence[str],
        prompts: PromptLike | Sequence[PromptLike] = None,
        *,
        options: Any = None,
        batch_size: int | None = None,
        **changes: Any,
    ) -> list[np.ndarray]:
        """Generate codec codes of several texts without waveforms: (Q, T) int32 each, prompts excluded.

        Texts are read exactly as given. Other arguments and errors as in `generate_batch`.
        """
        given = chosen(self.model.options, options, changes)
        requests = self.facts.requests(texts, given, prompts, exactly=True)
        spoken = self._together(requests, Callbacks(), batch_size, has_sound=False)
        return [result.codes for result in spoken]

    def opened(self, places: int, job: Any, *, streamed: bool, **how: Any) -> SpeechSession:
        """Open a running batch.

        job: bounds each request that will join; None for any.
        streamed: False for speech that nobody hears before its end.
        how: of SpeechSession.
        """
        policy = self.engine.windows(job, streamed=streamed)
        batch, admission = self.engine.open(places, job, policy)
        return SpeechSession(self.engine, self.model.code().speak, batch, admission, policy=policy, **how)

    def _sentences(
        self, live: LiveText, report: Callbacks, text: Iterator[str]
    ) -> Iterator[GenerationResult]:
        """Speak sentences as they come; the memory is checked with the first."""
        live = live.begun(next(text))
        self.engine.check(live.first.job())
        yield from self._parts(live, self.engine.longest(live.first), report, text)

    def _parts(
        self, request: Any, job: Any, report: Callbacks, text: Iterator[str] | None
    ) -> Iterator[GenerationResult]:
        """Yield a text's speech as it is decoded. While the caller uses a part, other threads may speak."""
        with exclusive(self.engine.host):
            session = self.opened(1, job, streamed=True, report=report)
        with closing(spoken(session, [request], report, text)) as parts:
            while True:
                with exclusive(self.engine.host):
                    _, part = next(parts, (0, None))
                if part is None:
                    return
                yield part

    def _together(
        self, requests: Sequence[Any], report: Callbacks, most: int | None = None, *, has_sound: bool = True
    ) -> list[GenerationResult]:
        """Speak requests in one batch, each as soon as it fits; in their order.

        most: pieces at once.  has_sound: False for codes alone.
        """
        if most is not None and most < 1:
            raise UsageError(f"batch_size: {most} is not a number of pieces; give 1 or more")
        with exclusive(self.engine.host):
            job, places = self.engine.together(requests, most)
            session = self.opened(
                places,
                job,
                streamed=False,
                has_sound=has_sound,
                is_late=self.engine.is_late(requests, places),
                at_once=places,
                report=report,
            )
            parts: list[list[GenerationResult]] = [[] for _ in requests]
            for index, part in spoken(session, requests, report):
                parts[index].append(part)
            return [merge(part) for part in parts]
