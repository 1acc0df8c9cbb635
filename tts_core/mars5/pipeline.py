"""MARS5's pipeline: a text and a voice in, codes and speech out.

Upstream: Camb-ai/MARS5-TTS@84697c8 (AGPL-3.0); written from a description, none of its code was used.
Differs from upstream: `timesteps` sets the number of diffusion steps; a shallow clone needs no transcript;
by default numbers and abbreviations are spelled out and long texts cut into pieces; a reference that is too
long is rejected; a text without any frame gives empty audio instead of a crash.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Unpack

import numpy as np

from tts_core.live.stream import stream
from tts_core.live.voices import SameVoices
from tts_core.mars5.admission import Mars5Admission
from tts_core.mars5.memory import Mars5Job, check_running
from tts_core.mars5.net import Mars5Net
from tts_core.mars5.options import Mars5Changes, Mars5Options
from tts_core.mars5.reference import Sizes
from tts_core.mars5.request import STAGES, Mars5Request, request, requests
from tts_core.mars5.speech import speak
from tts_core.nn.calls import exclusive, exclusive_parts
from tts_core.options import chosen
from tts_core.pipeline import Callbacks, Progress, PromptLike
from tts_core.results import GenerationResult, Meter, join
from tts_core.speaking.session import SpeechSession
from tts_core.speech.report import StageReport
from tts_core.speech.script import SIDE_BY_SIDE, Script
from tts_core.speech.together import Line, Single, log, streamed, together

Tell = Callable[[Progress], None]


class Mars5Pipeline:
    """MARS5's networks of either side with codec, vocoder and tokenizers. Build it with `load`."""

    def __init__(self, engine: Mars5Net):
        self.engine = engine
        self.sample_rate = engine.vocoder_config.sample_rate
        self.sizes = Sizes.of(engine.codec_config, engine.nar_config)
        self.configs = engine.configs

    @exclusive
    def generate(
        self,
        text: str,
        *,
        prompt: PromptLike = None,
        options: Mars5Options | None = None,
        progress: Tell | None = None,
        cancel: threading.Event | None = None,
        **changes: Unpack[Mars5Changes],
    ) -> GenerationResult:
        """Speak one text and return all of `stream` as one result, with its arguments and errors.

        Pieces of a long text run in parallel, as many as fit in memory; with a limit of all frames in order.
        """
        asked = self.request(text, chosen(Mars5Options, options, changes), prompt)
        if len(asked.pieces) == 1 or asked.max_frames is not None:
            return join(list(self.speak(asked, progress=progress, cancel=cancel)))
        log("mars5", asked)
        encoded, report, meter = self._heard(asked, Callbacks(progress, cancel))
        [spoken] = self._together([encoded], [Script(encoded, meter)], report)
        return spoken

    def stream(
        self,
        text: str | Iterable[str],
        *,
        prompt: PromptLike = None,
        options: Mars5Options | None = None,
        progress: Tell | None = None,
        cancel: threading.Event | None = None,
        **changes: Unpack[Mars5Changes],
    ) -> Iterator[GenerationResult]:
        """Speak one text piece by piece, each as soon as its audio is decoded and trimmed.

        text: or an iterable of its pieces; sentences are spoken as they become complete (tts_core.live), and
        errors in them are raised as they come.
        prompt: the voice, or its (Q, P) codes. With a transcript the clone is deep (the networks read the
        reference's words and continue it) unless deep_clone is False.
        options: settings; `changes` replace some of their fields.
        Seeds of the pieces are derived from the first; noise may be one source per piece.
        progress: called when a stage begins and after every piece.
        cancel: once set, the stream ends with CancelledError, between two ids or timesteps.
        codes in the results: all frames, also those whose audio was trimmed.
        Raises UsageError for a text, voice or value that cannot be used and ResourceError for too little
        memory, both at the call, before any network runs. One exception: whether a deep clone's reference
        leaves room for the text is checked after the codec has encoded it.
        """
        asked = chosen(Mars5Options, options, changes)
        if not isinstance(text, str):
            return stream(self, text, asked, SameVoices(prompt), progress=progress, cancel=cancel)
        return self.speak(self.request(text, asked, prompt), progress=progress, cancel=cancel)

    def request(self, text: str, options: Mars5Options, prompt: PromptLike = None) -> Mars5Request:
        """Check a caller's arguments without running a network. Raises UsageError."""
        return request(self.sizes, self.engine.vocabulary, text, options, prompt)

    @exclusive
    def speak(
        self, request: Mars5Request, *, progress: Tell | None = None, cancel: threading.Event | None = None
    ) -> Iterator[GenerationResult]:
        """Stream the speech of a request. The reference is encoded at the call.

        Raises ResourceError, before that, for too little memory.
        """
        log("mars5", request)
        return self._parts(*self._heard(request, Callbacks(progress, cancel)))

    def session(
        self, places: int, *, streamed: bool = True, job: Mars5Job | None = None, sound: bool = True
    ) -> SpeechSession:
        """Open a running batch, in which requests share the autoregressive network's steps.

        streamed: changes nothing; a piece is decoded once all of its codes are known.
        job: bounds each request that will join; None for any of at most MAX_LEN ids.
        sound: False for codes alone.
        Raises ResourceError for too little memory.
        """
        return self.opened(places, job, sound=sound)

    @exclusive
    def generate_batch(
        self,
        texts: Sequence[str],
        *,
        prompts: PromptLike | Sequence[PromptLike] = None,
        options: Mars5Options | None = None,
        progress: Tell | None = None,
        cancel: threading.Event | None = None,
        **changes: Unpack[Mars5Changes],
    ) -> list[GenerationResult]:
        """Speak several texts together, as many as fit in memory; each result equals that of `generate`.

        All texts are checked, and each voice is encoded once, before the first text starts.
        prompts, seed, max_frames, noise: one for all, or one per text. Other arguments as in `stream`. The
        times in a result are those until its text was spoken, without the encoding of voices. Raises
        UsageError, with the text's position, and ResourceError for too little memory.
        """
        asked = chosen(Mars5Options, options, changes)
        every = requests(self.sizes, self.engine.vocabulary, texts, asked, prompts)
        report = StageReport(Callbacks(progress, cancel), sum(one.seconds for one in every))
        encoded = self._encoded(every, report)
        return self._together(encoded, [Single(one) for one in encoded], report)

    @exclusive
    def generate_codes(
        self,
        texts: Sequence[str],
        prompts: PromptLike | Sequence[PromptLike] = None,
        *,
        options: Mars5Options | None = None,
        **changes: Unpack[Mars5Changes],
    ) -> list[np.ndarray]:
        """Generate codes of several texts without waveforms: (Q, T) int32 each, prompts excluded.

        Texts are read exactly as given. Other arguments and errors as in `generate_batch`.
        """
        asked = chosen(Mars5Options, options, changes)
        every = requests(self.sizes, self.engine.vocabulary, texts, asked, prompts, exactly=True)
        encoded = self._encoded(every, StageReport())
        spoken = self._together(encoded, [Single(one) for one in encoded], StageReport(), sound=False)
        return [one.codes for one in spoken]

    def opened(
        self,
        places: int,
        job: Mars5Job | None,
        *,
        sound: bool = True,
        report: StageReport | None = None,
        meter: Meter | None = None,
    ) -> SpeechSession:
        """Open a running batch. Arguments and errors as in `session`.

        report: takes the stages and steps of all requests.
        meter: of its only request, if that was encoded before.
        """
        engine, admission = self.engine, Mars5Admission(self.engine, places, job)
        return SpeechSession(
            engine,
            speak,
            engine.slots(admission.places, admission.room),
            admission,
            self.rehearsal,
            policy=None,
            has_sound=sound,
            report=report,
            meter=meter,
        )

    def rehearsal(self) -> Mars5Request:
        """Build a short request that runs every network but the codec, for a warm-up."""
        voice = np.zeros((self.sizes.n_codebooks, round(self.sizes.frame_rate)), np.int32)
        return self.request("Yes.", Mars5Options(seed=0, max_frames=16, timesteps=2), voice)

    def check_memory(self, job: Mars5Job) -> None:
        """Raise ResourceError unless a job fits in the free memory."""
        check_running(self.configs, job, self.engine.host.machine())

    @exclusive_parts
    def _parts(self, request: Mars5Request, report: StageReport, meter: Meter) -> Iterator[GenerationResult]:
        """Yield the speech of a request piece by piece, in a session of its own."""
        session = self.opened(1, request.job(), report=report, meter=meter)
        yield from streamed(session, request, Callbacks(None, report.watch.cancel), request.seconds)

    def _heard(self, request: Mars5Request, watch: Callbacks) -> tuple[Mars5Request, StageReport, Meter]:
        """Encode the voice of one request, as its first stage."""
        report, meter = StageReport(watch, request.seconds), Meter(self.sample_rate, STAGES)
        with meter.stage("codec"):
            [encoded] = self._encoded([request], report)
        return encoded, report, meter

    def _encoded(self, asked: Sequence[Mars5Request], report: StageReport) -> list[Mars5Request]:
        """Encode the voices of requests. Raises ResourceError, before that, for too little memory."""
        for one in asked:
            self.check_memory(one.job())
        self.engine.host.reset_peak()
        report.tell("codec")
        return [one.encoded(self.engine.encode, self.engine.vocabulary) for one in asked]

    @exclusive
    def _together(
        self, asked: Sequence[Mars5Request], lines: Sequence[Line], report: StageReport, *, sound: bool = True
    ) -> list[GenerationResult]:
        """Speak encoded requests at once, as many as fit. lines: of them."""
        job, most = Mars5Job.together([one.job() for one in asked]), max(SIDE_BY_SIDE, len(asked))

        def session(pieces: int) -> SpeechSession:
            return self.opened(min(pieces, most), job, sound=sound, report=report)

        return together(session, lines, Callbacks(None, report.watch.cancel), 0.0)
