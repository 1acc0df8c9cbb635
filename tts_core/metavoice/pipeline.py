"""MetaVoice's pipeline: a text and a voice in, codes and speech out.

Source: metavoiceio/metavoice-src, July 2024 (Apache-2.0).
Differs from upstream: seeds work; a long text is read in pieces, each with its own random numbers, and a
warning is logged if one is cut off; by default numbers and abbreviations are spelled out; codes of the second
stage are read by position; Vocos is the default decoder, multi-band diffusion an option; no denoising.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Unpack

import numpy as np

from tts_core.audio.delivery import Delivery
from tts_core.errors import UsageError
from tts_core.live.stream import stream
from tts_core.live.voices import SameVoices
from tts_core.metavoice.engine import MetaVoiceEngine
from tts_core.metavoice.memory import MetaVoiceJob, check_running
from tts_core.metavoice.options import MetaVoiceChanges, MetaVoiceOptions
from tts_core.metavoice.request import (
    STAGES,
    Facts,
    Request,
    read_voice,
    request,
    requests,
)
from tts_core.metavoice.script import Script
from tts_core.metavoice.session import MetaVoiceSession
from tts_core.metavoice.speech import sounds
from tts_core.nn.calls import named, named_parts
from tts_core.options import changed
from tts_core.pipeline import Progress, PromptLike, Watch
from tts_core.printable import counted
from tts_core.results import GenerationResult, Meter, join, real_time_factor
from tts_core.serving.session import Session
from tts_core.speech.together import streamed, together

BATCH = 8  # pieces run in parallel

Tell = Callable[[Progress], None]
_LOG = logging.getLogger("tts_core")
Check = Callable[[], None]  # raises CancelledError


class MetaVoicePipeline:
    """MetaVoice's networks of either side. Build it with `load`."""

    def __init__(self, engine: MetaVoiceEngine):
        self.engine = engine
        self.facts = Facts.of(engine.configs, engine.tokenizers)
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
        """Speak one text and return the parts of `stream` as one result, with its arguments and errors."""
        asked = self.request(text, changed(options or MetaVoiceOptions(), changes), prompt)
        return join(list(self.speak(asked, progress=progress, cancel=cancel)))

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
        asked = changed(options or MetaVoiceOptions(), changes)
        if not isinstance(text, str):
            return stream(self, text, asked, SameVoices(prompt), progress=progress, cancel=cancel)
        return self.speak(self.request(text, asked, prompt), progress=progress, cancel=cancel)

    def request(self, text: str, options: MetaVoiceOptions, prompt: PromptLike = None) -> Request:
        """Check a caller's arguments without running a network. Raises UsageError."""
        return request(self.facts, text, options, prompt)

    def speak(
        self, request: Request, *, progress: Tell | None = None, cancel: threading.Event | None = None
    ) -> Iterator[GenerationResult]:
        """Stream the speech of a request. Raises ResourceError, at the call, for too little memory."""
        _LOG.info(
            "metavoice: %s, about %.1f s of speech", counted(len(request.pieces), "piece"), request.seconds
        )
        self._check_memory(request.job())
        return self._parts(request, Watch(progress, cancel))

    def session(self, places: int, *, streamed: bool = True) -> Session:
        """Open a running batch, in which requests share the first stage's steps.

        streamed: changes nothing; a piece is decoded once all of its codes are known.
        Raises ResourceError for too little memory.
        """
        return MetaVoiceSession(self.engine, self.facts, places, self.rehearsal)

    @named
    def generate_batch(
        self,
        texts: Sequence[str],
        *,
        prompts: PromptLike | Sequence[PromptLike] = None,
        options: MetaVoiceOptions | None = None,
        progress: Tell | None = None,
        cancel: threading.Event | None = None,
        batch_size: int = BATCH,
        **changes: Unpack[MetaVoiceChanges],
    ) -> list[GenerationResult]:
        """Speak several texts with their pieces in parallel; each result equals that of the text by itself.

        prompts, seed, max_frames, noise: one for all, or one per text.  batch_size: most pieces run in
        parallel. The times in the results are the batch's. Other arguments as in `stream`. Raises UsageError,
        with the text's position, and ResourceError for too little memory.
        """
        meter, watch = Meter(self.sample_rate, STAGES), Watch(progress, cancel)
        asked = requests(self.facts, texts, changed(options or MetaVoiceOptions(), changes), prompts)
        expected = sum(one.seconds for one in asked)
        lines = self._together(asked, batch_size, meter, watch, expected)
        watch.tell("decoder", 0, expected)
        with meter.stage("decoder"):
            waves = iter(self._decoded(lines, watch))
        results = []
        for line in lines:
            delivery = Delivery(line.whole.pacing, self.sample_rate)
            audio = delivery.whole([next(waves) for _ in line.codes])
            meter.add(len(audio))
            codes = line.result()
            results.append(
                meter.result(
                    audio,
                    codes.codes,
                    seed=line.whole.seed,
                    token_count=codes.token_count,
                    peak_bytes=self.engine.host.peak_bytes(),
                    finish_reason=codes.finish_reason,
                    cues=delivery.cues(),
                )
            )
        watch.tell(STAGES[-1], meter.seconds_made, expected)
        seconds = results[-1].processing_time_seconds
        rtf = real_time_factor(seconds, meter.samples, self.sample_rate)
        return [replace(result, real_time_factor=rtf) for result in results]

    @named
    def generate_codes(
        self,
        texts: Sequence[str],
        prompts: PromptLike | Sequence[PromptLike] = None,
        *,
        options: MetaVoiceOptions | None = None,
        batch_size: int = BATCH,
        **changes: Unpack[MetaVoiceChanges],
    ) -> list[np.ndarray]:
        """Generate codec codes of several texts, (Q, F) int32 each, without waveforms.

        Texts are read as written, each in one piece. Other arguments and errors as in `generate_batch`.
        """
        given = changed(options or MetaVoiceOptions(), changes)
        asked = requests(self.facts, texts, given, prompts, exactly=True)
        meter = Meter(self.sample_rate, STAGES)
        return [line.result().codes for line in self._together(asked, batch_size, meter, Watch(None, None))]

    @named
    def speaker(self, prompt: PromptLike) -> np.ndarray:
        """Compute the vector of a voice, (E,) float32, to pass as `prompt`; a vector is returned unchanged.

        Vectors are cached by the audio. Raises UsageError for a prompt that is not a voice.
        """
        return read_voice(self.facts, prompt).encoded(self.engine.speaker)

    def rehearsal(self) -> Request:
        """Build a short request that runs every network but the speaker encoder, for a warm-up."""
        silence = np.zeros(self.facts.first.speaker_embedding_size, np.float32)
        return self.request("Yes.", MetaVoiceOptions(seed=0, max_frames=16), silence)

    def _together(
        self,
        asked: Sequence[Request],
        batch_size: int,
        meter: Meter,
        watch: Watch,
        expected: float | None = None,
    ) -> list[Script]:
        """Generate the codes of requests of one sampling, at most `batch_size` pieces at once.

        meter: of all stages before the decoder.  expected: seconds of speech.
        """
        if batch_size < 1:
            raise UsageError(f"batch_size: {batch_size} is not a number of pieces; give 1 or more")
        pieces = sum(len(one.pieces) for one in asked)
        job = replace(MetaVoiceJob.together([one.job() for one in asked]), batch=min(batch_size, pieces))
        self._check_memory(job)
        lines = [Script(one) for one in asked]

        def session(pieces: int) -> MetaVoiceSession:
            return MetaVoiceSession(
                self.engine,
                self.facts,
                min(pieces, job.batch),
                self.rehearsal,
                job=job,
                watch=watch,
                expected=expected,
                sound=False,
            )

        with meter.stage("first stage"):
            together(session, lines, Watch(None, watch.cancel), 0.0)
        for name in ("speaker", "second stage"):  # which waited for no other piece
            spent = sum(part.stage_seconds[name] for line in lines for part in line.spoken.values())
            meter.stage_seconds[name] += spent
            meter.stage_seconds["first stage"] -= spent
        return lines

    def _decoded(self, lines: Sequence[Script], watch: Watch) -> list[np.ndarray]:
        """Decode all pieces in shared calls: samples (L,) float32 of each, in order."""
        pieces = [piece for line in lines for piece in line.whole.pieces[: len(line.codes)]]
        codes = [one for line in lines for one in line.codes]
        noise, decoder = [piece.noise for piece in pieces], lines[0].whole.decoder
        return sounds(self.engine, self.facts, codes, noise, decoder, check=watch.check)

    def _check_memory(self, job: MetaVoiceJob) -> None:
        check_running(self.engine.configs, job, self.engine.host.machine())

    @named_parts
    def _parts(self, request: Request, watch: Watch) -> Iterator[GenerationResult]:
        """Yield the joined speech of all pieces, one part per piece."""
        expected = request.seconds
        session = MetaVoiceSession(
            self.engine, self.facts, 1, self.rehearsal, job=request.job(), watch=watch, expected=expected
        )
        yield from streamed(session, request, Watch(None, watch.cancel), expected)
