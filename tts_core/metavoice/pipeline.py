"""MetaVoice's pipeline: a text and a voice in, codes and speech out.

Source: metavoiceio/metavoice-src, July 2024 (Apache-2.0).
Differs from upstream: seeds work; a long text is read in pieces, each with its own random numbers, and a
warning is logged if one is cut off; by default numbers and abbreviations are spelled out; codes of the second
stage are read by position; Vocos is the default decoder, multi-band diffusion an option; no denoising.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Protocol, Unpack

import numpy as np

from tts_core.audio.delivery import Delivery
from tts_core.errors import UsageError
from tts_core.live.stream import stream
from tts_core.live.voices import SameVoices
from tts_core.metavoice.config import FIRST_STAGE_BOOKS
from tts_core.metavoice.memory import MetaVoiceJob, check_running
from tts_core.metavoice.options import Decoder, MetaVoiceChanges, MetaVoiceOptions
from tts_core.metavoice.request import (
    FRAME_RATE,
    STAGES,
    Batch,
    Facts,
    Piece,
    Request,
    Said,
    read_voice,
    request,
    request_batch,
)
from tts_core.metavoice.sampling import FirstStageSampling, SpeechNoise
from tts_core.metavoice.session import MetaVoiceSession
from tts_core.metavoice.speech import Speech, all_codes, sounds
from tts_core.metavoice.text import Tokenizers
from tts_core.nn.calls import named, named_parts
from tts_core.nn.host import Host
from tts_core.options import changed
from tts_core.pipeline import Progress, PromptLike, Watch
from tts_core.printable import counted
from tts_core.results import GenerationResult, Meter, join, real_time_factor
from tts_core.serving.session import Session
from tts_core.serving.turns import Slots

BATCH = 8  # pieces run in parallel

Tell = Callable[[Progress], None]
_LOG = logging.getLogger("tts_core")
Check = Callable[[], None]  # raises CancelledError


class MetaVoiceSlots(Slots, Protocol):
    """A running batch of the first stage, `metavoice/slots.py`."""

    def fits(self, sampling: FirstStageSampling) -> bool:
        """Return whether there are rows for a text with this sampling."""
        ...


class Engine(Protocol):
    """MetaVoice's networks on one side, `metavoice/engine.py`, with their tokenizers."""

    @property
    def configs(self) -> Mapping[str, object]:
        """Configurations of all parts, by kind."""
        ...

    @property
    def tokenizers(self) -> Tokenizers:
        """The tokenizers of both stages."""
        ...

    @property
    def host(self) -> Host:
        """The device that the networks run on."""
        ...

    def speaker(self, utterances: Sequence[np.ndarray]) -> np.ndarray:
        """Encode recordings, (L,) float32 samples at 16 kHz each, as the voice's vector, (E,) float32."""
        ...

    def slots(self, texts: int, rows: int) -> MetaVoiceSlots:
        """Allocate a running batch of the first stage for as many texts, on as many rows."""
        ...

    def say(
        self,
        pieces: Sequence[Piece],
        vectors: np.ndarray,
        limits: Sequence[int],
        sampling: FirstStageSampling,
        *,
        batch_size: int,
        check: Check,
    ) -> list[np.ndarray]:
        """Run the first stage on pieces. Returns their ids, text included, (N,) int32 each.

        vectors: (P, E).  limits: most new ids of each piece.  check: called between ids.
        """
        ...

    def fill(self, piece: Piece, codes: np.ndarray, vector: np.ndarray) -> np.ndarray:
        """Run the second stage. codes: (2, F) int32, F > 0 → all codebooks, (Q, F) int32. vector: (E,)."""
        ...

    def decode(
        self, codes: Sequence[np.ndarray], noise: Sequence[SpeechNoise], decoder: Decoder, *, check: Check
    ) -> list[np.ndarray]:
        """Decode the codes of each piece. (Q, F) int32, F > 0 → samples (L,) float32 each.

        check: called between windows or timesteps.
        """
        ...


class MetaVoicePipeline:
    """MetaVoice's networks of either side. Build it with `load`."""

    def __init__(self, engine: Engine):
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
        prompt: the voice: one or more recordings of it, or a vector from `speaker`.  options: settings;
        `changes` replace some of their fields. The seed is the first piece's; the others' are derived from
        it.  progress: called as every stage of a piece begins and ends.  cancel: once set, the stream ends
        with CancelledError.
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
        run = _Run(self, Meter(self.sample_rate, STAGES), Watch(progress, cancel), request.seconds)
        self._check_memory(request.job())
        return self._parts(request, run)

    def session(self, places: int, *, streamed: bool = True) -> Session:
        """Open a running batch, in which requests share the first stage's steps.

        streamed: changes nothing; a piece is decoded once all of its codes are known.
        Raises ResourceError for too little memory.
        """
        return MetaVoiceSession(self, places)

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
        batch = self._batch(texts, prompts, changed(options or MetaVoiceOptions(), changes), batch_size)
        run = _Run(self, meter, watch, sum(text.seconds for text in batch.texts))
        self.engine.host.reset_peak()
        heard, codes = run.codes(batch, batch_size)
        sources = [
            piece.noise
            for text, made in zip(batch.texts, codes, strict=True)
            for piece in text.pieces[: len(made)]
        ]
        waves = iter(run.decode([one for made in codes for one in made], sources, batch.decoder))
        results = []
        for text, said, made in zip(batch.texts, heard, codes, strict=True):
            delivery = Delivery(text.pacing, self.sample_rate)
            audio = delivery.whole([next(waves) for _ in made])
            ended = len(said) == len(text.pieces) and all(one.ended for one in said)
            meter.add(len(audio))
            results.append(
                meter.result(
                    audio,
                    np.concatenate(made, axis=1),
                    seed=text.seed,
                    token_count=sum(one.ids for one in said),
                    peak_bytes=self.engine.host.peak_bytes(),
                    finish_reason="stop" if ended else "length",
                    cues=delivery.cues(),
                )
            )
        watch.tell(STAGES[-1], meter.seconds_made, run.expected)
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
        asked = changed(options or MetaVoiceOptions(), changes)
        batch = self._batch(texts, prompts, asked, batch_size, exactly=True)
        run = _Run(self, Meter(self.sample_rate, STAGES), Watch(None, None), None)
        return [codes for (codes,) in run.codes(batch, batch_size)[1]]

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

    def _batch(
        self,
        texts: Sequence[str],
        prompts: PromptLike | Sequence[PromptLike],
        options: MetaVoiceOptions,
        batch_size: int,
        *,
        exactly: bool = False,
    ) -> Batch:
        """Check the texts and their memory."""
        if batch_size < 1:
            raise UsageError(f"batch_size: {batch_size} is not a number of pieces; give 1 or more")
        batch = request_batch(self.facts, texts, options, prompts, exactly=exactly)
        self._check_memory(batch.job(batch_size))
        return batch

    def _check_memory(self, job: MetaVoiceJob) -> None:
        host = self.engine.host
        check_running(
            self.engine.configs, job, dtype=host.dtype, backend=host.backend, free=host.free_bytes()
        )

    @named_parts
    def _parts(self, request: Request, run: _Run) -> Iterator[GenerationResult]:
        """Yield the joined speech of all pieces, one part per piece."""
        self.engine.host.reset_peak()
        vector, speech = run.speaker(request), Speech(request, run.meter)
        while not speech.done:
            piece = speech.piece
            (sequence,) = run.say([piece], vector[None], [speech.limit], request.sampling, 1)
            codes = run.fill(piece, speech.hear(sequence), vector)
            (sound,) = run.decode([codes], [piece.noise], request.decoder)
            result = speech.deliver(codes, sound, peak_bytes=self.engine.host.peak_bytes())
            run.watch.tell(STAGES[-1], run.meter.seconds_made, run.expected)
            yield result


class _Run:
    """The stages of one call; each is timed and reported to the caller. expected: total seconds of speech,
    if known.
    """

    def __init__(self, pipeline: MetaVoicePipeline, meter: Meter, watch: Watch, expected: float | None):
        self.engine, self.facts = pipeline.engine, pipeline.facts
        self.meter, self.watch, self.expected = meter, watch, expected

    def speaker(self, text: Request) -> np.ndarray:
        """Compute the vector of a text's voice, (E,)."""
        with self._stage("speaker"):
            return text.voice.encoded(self.engine.speaker)

    def speakers(self, texts: Sequence[Request]) -> np.ndarray:
        """Compute one vector per text, (B, E); a voice that several texts share is computed once."""
        known: dict[int, np.ndarray] = {}
        for text in texts:
            if id(text.voice) not in known:
                known[id(text.voice)] = self.speaker(text)
        return np.stack([known[id(text.voice)] for text in texts])

    def codes(self, batch: Batch, batch_size: int) -> tuple[list[list[Said]], list[list[np.ndarray]]]:
        """Run both stages on every piece of every text: the first's result, and codes (Q, F) int32."""
        vectors, pieces = self.speakers(batch.texts), batch.pieces
        sequences = iter(
            self.say(
                [text.pieces[place] for text, place in pieces],
                np.repeat(vectors, [len(text.pieces) for text in batch.texts], axis=0),
                [text.pieces[place].limit(text.frames(place)) for text, place in pieces],
                batch.sampling,
                batch_size,
            )
        )
        heard = [text.all_said([next(sequences) for _ in text.pieces]) for text in batch.texts]
        return heard, [
            [self.fill(piece, one, vector) for piece, one in zip(text.pieces, said, strict=False)]
            for text, said, vector in zip(batch.texts, heard, vectors, strict=True)
        ]

    def say(
        self,
        pieces: Sequence[Piece],
        vectors: np.ndarray,
        limits: Sequence[int],
        sampling: FirstStageSampling,
        batch_size: int,
    ) -> list[np.ndarray]:
        """Run the first stage; arguments as in `Engine.say`."""
        ids = round(FIRST_STAGE_BOOKS * FRAME_RATE * max(piece.seconds for piece in pieces))
        with self._stage("first stage", ids):
            return self.engine.say(
                pieces, vectors, limits, sampling, batch_size=batch_size, check=self.watch.check
            )

    def fill(self, piece: Piece, said: Said, vector: np.ndarray) -> np.ndarray:
        """Run the second stage: codes of all codebooks, (Q, F) int32."""
        with self._stage("second stage"):
            return all_codes(self.engine, self.facts, piece, said, vector)

    def decode(
        self, codes: Sequence[np.ndarray], noise: Sequence[SpeechNoise], decoder: Decoder
    ) -> list[np.ndarray]:
        """Decode the codes (Q, F) of each piece to samples (L,) float32 at the target loudness."""
        with self._stage("decoder"):
            return sounds(self.engine, self.facts, codes, noise, decoder, check=self.watch.check)

    def _stage(self, name: str, steps: int | None = None) -> AbstractContextManager[None]:
        self.watch.tell(name, self.meter.seconds_made, self.expected, steps)
        return self.meter.stage(name)
