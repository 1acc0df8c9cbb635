"""Dia2's pipeline: text and recordings in, codes, speech and the times of words out.

Source: nari-labs/dia2@8687268, Apache-2.0.
Differs from upstream: text may come while speech goes out; a long text is spoken in pieces that have the same
voices; recordings come with their words.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Unpack

import numpy as np

from tts_core.codecs.mimi import MimiConfig
from tts_core.dia2.admission import Dia2Admission, check_memory
from tts_core.dia2.config import Dia2Config
from tts_core.dia2.memory import Dia2Job
from tts_core.dia2.net import Dia2Net
from tts_core.dia2.options import Dia2Changes, Dia2Options
from tts_core.dia2.request import Dia2Facts, Dia2Request, live, request
from tts_core.dia2.speech import speak
from tts_core.live.stream import checked_pieces
from tts_core.options import chosen
from tts_core.pipeline import Callbacks, Progress, PromptLike
from tts_core.prompt import Prompt
from tts_core.results import GenerationResult, join
from tts_core.speaking.pipeline import SpeechPipeline
from tts_core.speaking.session import SpeechSession

Tell = Callable[[Progress], None]


class Dia2Pipeline(SpeechPipeline[Dia2Request]):
    """A Dia2 of either side with its codec. Build it with `load`."""

    name = "dia2"

    def __init__(self, engine: Dia2Net):
        self.engine = engine
        self.facts = Dia2Facts.of(engine.configs, engine.documents)
        self.config: Dia2Config = self.facts.config
        self.codec_config: MimiConfig = self.facts.codec
        self.sample_rate = self.codec_config.sample_rate

    def generate(
        self,
        text: str,
        *,
        prompt: PromptLike = None,
        options: Dia2Options | None = None,
        progress: Tell | None = None,
        cancel: threading.Event | None = None,
        **changes: Unpack[Dia2Changes],
    ) -> GenerationResult:
        """Speak one text and return all of `stream` as one result, with its arguments and errors.

        The codec's windows are longer than a stream's: samples are equal up to rounding.
        """
        asked = self.request(text, chosen(Dia2Options, options, changes), prompt)
        return join(list(self._speak(asked, Callbacks(progress, cancel), is_streamed=False)))

    def stream(
        self,
        text: str | Iterable[str],
        *,
        prompt: PromptLike = None,
        options: Dia2Options | None = None,
        progress: Tell | None = None,
        cancel: threading.Event | None = None,
        **changes: Unpack[Dia2Changes],
    ) -> Iterator[GenerationResult]:
        """Speak one text part by part, each as soon as its codes are known.

        text: or an iterable of its pieces, each spoken while the next one is awaited.
        prompt: a recording of each speaker, with its words and their times.
        options: settings; `changes` replace some of their fields. A long text is spoken in pieces with the
        same voices: the recordings', else those of the first piece. Their seeds are derived from the first.
        progress: called after every part.
        cancel: once set, the stream ends with CancelledError.
        Raises UsageError for a text, recording or value that cannot be used and ResourceError for too little
        memory, both at the call, before any network runs; for pieces of text, as they come.
        """
        asked = chosen(Dia2Options, options, changes)
        if isinstance(text, str):
            return self.speak(self.request(text, asked, prompt), progress=progress, cancel=cancel)
        opened = live(self.facts, "", asked, prompt)
        return self._speak(opened, Callbacks(progress, cancel), is_streamed=True, text=checked_pieces(text))

    def request(self, text: str, options: Dia2Options, prompt: PromptLike = None) -> Dia2Request:
        """Check a caller's arguments without running a network. Raises UsageError."""
        return request(self.facts, text, options, prompt)

    def session(self, places: int, *, streamed: bool = True) -> SpeechSession:
        """Open a running batch; arguments as in Pipeline. Raises ResourceError for too little memory."""
        return self.opened(places, None, streamed=streamed)

    def generate_batch(
        self,
        texts: Sequence[str],
        *,
        prompts: Prompt | Sequence[PromptLike] | None = None,
        options: Dia2Options | None = None,
        progress: Tell | None = None,
        cancel: threading.Event | None = None,
        **changes: Unpack[Dia2Changes],
    ) -> list[GenerationResult]:
        """Speak several texts together; each has the codes that it has by itself.

        prompts: one for all, or one per text.  seed, max_frames and noise: one for all, or one per text. All
        are checked before the first is spoken. Raises UsageError and ResourceError.
        """
        given = chosen(Dia2Options, options, changes)
        return self._together(self._requests(texts, given, prompts), Callbacks(progress, cancel))

    def generate_codes(
        self,
        texts: Sequence[str],
        prompts: Prompt | Sequence[PromptLike] | None = None,
        *,
        options: Dia2Options | None = None,
        **changes: Unpack[Dia2Changes],
    ) -> list[np.ndarray]:
        """Generate codec codes of several texts without waveforms: (Q, T) int32 each.

        Texts are read as the original does. Other arguments and errors as in `generate_batch`.
        """
        exactly = replace(chosen(Dia2Options, options, changes), as_written=True)
        spoken = self._together(self._requests(texts, exactly, prompts), Callbacks(None, None), sound=False)
        return [one.codes for one in spoken]

    def check_memory(self, job: Dia2Job) -> None:
        """Raise ResourceError, naming what would fit, unless a job fits in the free memory."""
        check_memory(self.engine, job)

    def opened(
        self, places: int, job: Dia2Job | None, *, streamed: bool, sound: bool = True
    ) -> SpeechSession:
        policy = self.engine.policy if streamed else self.engine.policy.unheard()
        engine, admission = self.engine, Dia2Admission(self.engine, places, job, policy)
        batch = engine.slots(admission.places, admission.rows, guided=admission.guided)
        return SpeechSession(engine, speak, batch, admission, self._rehearsal, policy=policy, has_sound=sound)

    def _rehearsal(self) -> Dia2Request:
        return self.request("[S1] Yes.", Dia2Options(seed=0, max_frames=2))
