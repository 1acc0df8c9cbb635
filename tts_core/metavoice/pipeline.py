"""MetaVoice's pipeline: a text and a voice in, codes and speech out.

Source: metavoiceio/metavoice-src, July 2024 (Apache-2.0).
Differs from upstream: seeds work; a long text is read in pieces, each with its own random numbers, and a
warning is logged if one is cut off; by default numbers and abbreviations are spelled out; codes of the second
stage are read by position; Vocos is the default decoder, multi-band diffusion an option; no denoising.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Unpack

import numpy as np

from tts_core.errors import UsageError
from tts_core.live.stream import stream
from tts_core.live.voices import SameVoices
from tts_core.memory.fits import fitting
from tts_core.metavoice.admission import MetaVoiceAdmission
from tts_core.metavoice.memory import MetaVoiceJob, check_running, estimate
from tts_core.metavoice.net import MetaVoiceNet
from tts_core.metavoice.options import MetaVoiceChanges, MetaVoiceOptions
from tts_core.metavoice.request import (
    STAGES,
    MetaVoiceRequest,
    read_voice,
    request,
    requests,
)
from tts_core.metavoice.speech import speak
from tts_core.nn.calls import exclusive, exclusive_parts
from tts_core.options import chosen
from tts_core.pipeline import Callbacks, Progress, PromptLike
from tts_core.results import GenerationResult, Meter, join
from tts_core.speaking.session import SpeechSession
from tts_core.speech.report import StageReport
from tts_core.speech.script import SIDE_BY_SIDE, line
from tts_core.speech.together import log, streamed, together

Tell = Callable[[Progress], None]


class MetaVoicePipeline:
    """MetaVoice's networks of either side. Build it with `load`."""

    def __init__(self, engine: MetaVoiceNet):
        self.engine = engine
        self.facts = engine.facts
        self.sample_rate = self.facts.vocoder.sample_rate

    def generate(
        self,
        text: str,
        *,
        prompt: PromptLike = None,
        options: MetaVoiceOptions | None = None,
        progress: Tell | None = None,
        cancel: threading.Event | None = None,
        **changes: Unpack[MetaVoiceChanges],
    ) -> GenerationResult:
        """Speak one text and return all of `stream` as one result, with its arguments and errors.

        Pieces of a long text run in parallel, as many as fit in memory; with a limit of all frames in order.
        """
        asked = self.request(text, chosen(MetaVoiceOptions, options, changes), prompt)
        if len(asked.pieces) == 1 or asked.max_frames is not None:
            return join(list(self.speak(asked, progress=progress, cancel=cancel)))
        log("metavoice", asked)
        wanted = self._job([asked], SIDE_BY_SIDE)
        plan = partial(estimate, self.engine.configs)
        places = fitting(plan, wanted, self.engine.host.machine())
        [spoken] = self._together([asked], replace(wanted, batch=places), Callbacks(progress, cancel))
        return spoken

    def stream(
        self,
        text: str | Iterable[str],
        *,
        prompt: PromptLike = None,
        options: MetaVoiceOptions | None = None,
        progress: Tell | None = None,
        cancel: threading.Event | None = None,
        **changes: Unpack[MetaVoiceChanges],
    ) -> Iterator[GenerationResult]:
        """Speak one text piece by piece, each as soon as it is finished, at -14 LUFS.

        text: or an iterable of its pieces; sentences are spoken as they become complete (tts_core.live), and
        errors in them are raised as they come.
        prompt: the voice: one or more recordings of it, or a vector from `speaker`.
        options: settings; `changes` replace some of their fields. The seed is the first piece's; the others'
        are derived from it.
        progress: called as every stage of a piece begins and ends.
        cancel: once set, the stream ends with CancelledError.
        Raises UsageError for a text, voice or value that cannot be used and ResourceError for too little
        memory, both at the call, before any network runs.
        """
        asked = chosen(MetaVoiceOptions, options, changes)
        if not isinstance(text, str):
            return stream(self, text, asked, SameVoices(prompt), progress=progress, cancel=cancel)
        return self.speak(self.request(text, asked, prompt), progress=progress, cancel=cancel)

    def request(self, text: str, options: MetaVoiceOptions, prompt: PromptLike = None) -> MetaVoiceRequest:
        """Check a caller's arguments without running a network. Raises UsageError."""
        return request(self.facts, text, options, prompt)

    def speak(
        self,
        request: MetaVoiceRequest,
        *,
        progress: Tell | None = None,
        cancel: threading.Event | None = None,
    ) -> Iterator[GenerationResult]:
        """Stream the speech of a request. Raises ResourceError, at the call, for too little memory."""
        log("metavoice", request)
        self._check_memory(request.job())
        return self._parts(request, Callbacks(progress, cancel))

    def session(self, places: int, *, streamed: bool = True) -> SpeechSession:
        """Open a running batch, in which requests share the first stage's steps.

        streamed: changes nothing; a piece is decoded once all of its codes are known.
        Raises ResourceError for too little memory.
        """
        return self.opened(places, None)

    @exclusive
    def generate_batch(
        self,
        texts: Sequence[str],
        *,
        prompts: PromptLike | Sequence[PromptLike] = None,
        options: MetaVoiceOptions | None = None,
        progress: Tell | None = None,
        cancel: threading.Event | None = None,
        batch_size: int = SIDE_BY_SIDE,
        **changes: Unpack[MetaVoiceChanges],
    ) -> list[GenerationResult]:
        """Speak several texts with their pieces in parallel; each result equals that of the text by itself.

        prompts, seed, max_frames, noise: one for all, or one per text.  batch_size: most pieces run in
        parallel. The times in a result are those until its text was spoken. Other arguments as in `stream`.
        Raises UsageError, with the text's position, and ResourceError for too little memory.
        """
        given = chosen(MetaVoiceOptions, options, changes)
        asked = requests(self.facts, texts, given, prompts)
        return self._together(asked, self._job(asked, batch_size), Callbacks(progress, cancel))

    @exclusive
    def generate_codes(
        self,
        texts: Sequence[str],
        prompts: PromptLike | Sequence[PromptLike] = None,
        *,
        options: MetaVoiceOptions | None = None,
        batch_size: int = SIDE_BY_SIDE,
        **changes: Unpack[MetaVoiceChanges],
    ) -> list[np.ndarray]:
        """Generate codec codes of several texts, (Q, F) int32 each, without waveforms.

        Texts are read as written, each in one piece. Other arguments and errors as in `generate_batch`.
        """
        given = chosen(MetaVoiceOptions, options, changes)
        asked = requests(self.facts, texts, given, prompts, exactly=True)
        spoken = self._together(asked, self._job(asked, batch_size), Callbacks(None, None), sound=False)
        return [one.codes for one in spoken]

    @exclusive
    def speaker(self, prompt: PromptLike) -> np.ndarray:
        """Compute the vector of a voice, (E,) float32, to pass as `prompt`; a vector is returned unchanged.

        Vectors are cached by the audio. Raises UsageError for a prompt that is not a voice.
        """
        return read_voice(self.facts, prompt).encoded(self.engine.speaker)

    def opened(
        self,
        places: int,
        job: MetaVoiceJob | None,
        *,
        report: StageReport | None = None,
        sound: bool = True,
        is_late: bool = False,
    ) -> SpeechSession:
        """Open a running batch. Raises ResourceError for too little memory.

        job: bounds each request, where it is known that `places` of them fit; None for any request.
        sound: False for codes alone.
        is_late: for a diffusion that nobody awaits, whose bands are loaded for each call: it begins when no
        first stage runs.
        """
        engine, admission = self.engine, MetaVoiceAdmission(self.engine, places, job)
        batch = engine.slots(admission.places, admission.rows, admission.room)
        return SpeechSession(
            engine,
            speak,
            batch,
            admission,
            self.rehearsal,
            policy=None,
            has_sound=sound,
            is_late=is_late,
            report=report,
        )

    def rehearsal(self) -> MetaVoiceRequest:
        """Build a short request that runs every network but the speaker encoder, for a warm-up."""
        silence = np.zeros(self.facts.first.speaker_embedding_size, np.float32)
        return self.request("Yes.", MetaVoiceOptions(seed=0, max_frames=16), silence)

    def _job(self, asked: Sequence[MetaVoiceRequest], places: int) -> MetaVoiceJob:
        """Return the memory job of requests of one sampling, at most `places` pieces at once."""
        if places < 1:
            raise UsageError(f"batch_size: {places} is not a number of pieces; give 1 or more")
        pieces = sum(len(one.pieces) for one in asked)
        return replace(MetaVoiceJob.together([one.job() for one in asked]), batch=min(places, pieces))

    @exclusive
    def _together(
        self, asked: Sequence[MetaVoiceRequest], job: MetaVoiceJob, watch: Callbacks, *, sound: bool = True
    ) -> list[GenerationResult]:
        """Speak requests of one sampling, as many of their pieces at once as the job has."""
        self._check_memory(job)
        report = StageReport(watch, sum(one.seconds for one in asked))

        def session(pieces: int) -> SpeechSession:
            places, is_late = min(pieces, job.batch), job.decoder == "mbd"
            return self.opened(places, job, report=report, sound=sound, is_late=is_late)

        lines = [line(one, Meter(self.sample_rate, STAGES)) for one in asked]
        return together(session, lines, Callbacks(None, watch.cancel), 0.0)

    def _check_memory(self, job: MetaVoiceJob) -> None:
        check_running(self.engine.configs, job, self.engine.host.machine())

    @exclusive_parts
    def _parts(self, request: MetaVoiceRequest, watch: Callbacks) -> Iterator[GenerationResult]:
        """Yield the joined speech of all pieces, one part per piece."""
        report = StageReport(watch, request.seconds)
        session = self.opened(1, request.job(), report=report)
        yield from streamed(session, request, Callbacks(None, watch.cancel), request.seconds)
