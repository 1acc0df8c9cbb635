"""MetaVoice's generation: a text and a voice in, codes and speech out.

Source: metavoiceio/metavoice-src, July 2024 (Apache-2.0).
Differs from upstream: seeds work; a long text is read in pieces, each with its own random numbers, and none
is cut without a word; numbers and abbreviations are spoken unless told otherwise; codes of the second stage
are read by their places; Vocos makes the wave unless multi-band diffusion is asked for; nothing is denoised.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Protocol, Unpack

import numpy as np

from tts_core.audio.joining import Joiner
from tts_core.audio.joining import join as join_waves
from tts_core.audio.loudness import normalize_loudness
from tts_core.errors import UsageError
from tts_core.metavoice.memory import MetaVoiceJob, check_running
from tts_core.metavoice.options import Decoder, MetaVoiceChanges, MetaVoiceOptions
from tts_core.metavoice.request import (
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
from tts_core.metavoice.text import Tokenizers
from tts_core.nn.host import Host
from tts_core.options import changed
from tts_core.pipeline import Progress, PromptLike, Watch
from tts_core.results import FinishReason, GenerationResult, Meter, join, real_time_factor

BATCH = 8  # pieces side by side

Tell = Callable[[Progress], None]
_LOG = logging.getLogger("tts_core")
Check = Callable[[], None]  # raises CancelledError


class Engine(Protocol):
    """MetaVoice's networks on one side, `metavoice/engine.py`, with their tokenizers."""

    @property
    def configs(self) -> Mapping[str, object]:
        """Of all parts, by kind."""
        ...

    @property
    def tokenizers(self) -> Tokenizers:
        """Of both stages."""
        ...

    @property
    def host(self) -> Host:
        """Where the networks compute."""
        ...

    def speaker(self, utterances: Sequence[np.ndarray]) -> np.ndarray:
        """(L,) float32 samples at 16 kHz of each recording → the voice's vector, (E,) float32."""
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
        """The first stage's ids of pieces, their text included, (N,) int32 each. vectors: (P, E).

        limits: ids of each piece at most.  check: called between ids.
        """
        ...

    def fill(self, piece: Piece, codes: np.ndarray, vector: np.ndarray) -> np.ndarray:
        """The second stage: (2, F) int32 codes, F > 0 → all codebooks, (Q, F) int32. vector: (E,)."""
        ...

    def decode(
        self, codes: Sequence[np.ndarray], noise: Sequence[SpeechNoise], decoder: Decoder, *, check: Check
    ) -> list[np.ndarray]:
        """(Q, F) int32 codes of each piece, F > 0 → (L,) float32 samples each. check: called between windows
        or timesteps.
        """
        ...


class MetaVoicePipeline:
    """MetaVoice's networks, of either side. Created by `load`."""

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
        """Speak one text: the parts of `stream` as one result, with the same arguments and errors."""
        asked = self.request(text, changed(options or MetaVoiceOptions(), changes), prompt)
        return join(list(self.speak(asked, progress=progress, cancel=cancel)))

    def stream(
        self,
        text: str,
        *,
        prompt: PromptLike = None,
        options: MetaVoiceOptions | None = None,
        progress: Tell | None = None,
        cancel: threading.Event | None = None,
        **changes: Unpack[MetaVoiceChanges],
    ) -> Iterator[GenerationResult]:
        """Speak one text, each piece of it as soon as it is finished, at -14 LUFS.

        prompt: the voice: one recording of it or several, or a vector that `speaker` gave.  options: how to
        speak; `changes` replace some of its fields. The seed is the first piece's; the others' are derived
        from it.  progress: called as every stage of a piece begins and ends.  cancel: once set, the stream
        ends with CancelledError.
        Raises UsageError, at the call, for a text, voice or value that cannot be used, ResourceError for what
        memory does not hold; no network has run by then.
        """
        asked = self.request(text, changed(options or MetaVoiceOptions(), changes), prompt)
        return self.speak(asked, progress=progress, cancel=cancel)

    def request(self, text: str, options: MetaVoiceOptions, prompt: PromptLike = None) -> Request:
        """Check what a caller asks for. No network runs. Raises UsageError."""
        return request(self.facts, text, options, prompt)

    def speak(
        self, request: Request, *, progress: Tell | None = None, cancel: threading.Event | None = None
    ) -> Iterator[GenerationResult]:
        """The stream of a request. Raises ResourceError, at the call, for what memory does not hold."""
        _LOG.info("metavoice: %d piece(s), about %.1f s of speech", len(request.pieces), request.seconds)
        run = _Run(self, Meter(self.sample_rate, STAGES), Watch(progress, cancel), request.seconds)
        self._check_memory(request.job())
        return self._parts(request, run)

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
        """Speak several texts, their pieces side by side; each gives what it gives by itself.

        prompts, seed, max_frames, noise: one for all, or one per text.  batch_size: pieces side by side at
        most. The times in the results are the batch's. Other arguments as of `stream`. Raises UsageError,
        naming the text's place, and ResourceError for what memory does not hold.
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
            audio = join_waves([next(waves) for _ in made], self.sample_rate)
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
                )
            )
        watch.tell(STAGES[-1], meter.seconds_made, run.expected)
        seconds = results[-1].processing_time_seconds
        rtf = real_time_factor(seconds, meter.samples, self.sample_rate)
        return [replace(result, real_time_factor=rtf) for result in results]

    def generate_codes(
        self,
        texts: Sequence[str],
        prompts: PromptLike | Sequence[PromptLike] = None,
        *,
        options: MetaVoiceOptions | None = None,
        batch_size: int = BATCH,
        **changes: Unpack[MetaVoiceChanges],
    ) -> list[np.ndarray]:
        """Codec codes of several texts, (Q, F) int32 each; no waveform.

        Texts are read as they are written, each in one piece. Other arguments and errors as of
        `generate_batch`.
        """
        asked = changed(options or MetaVoiceOptions(), changes)
        batch = self._batch(texts, prompts, asked, batch_size, exactly=True)
        run = _Run(self, Meter(self.sample_rate, STAGES), Watch(None, None), None)
        return [codes for (codes,) in run.codes(batch, batch_size)[1]]

    def speaker(self, prompt: PromptLike) -> np.ndarray:
        """The vector of a voice, (E,) float32, to be given as `prompt`; a vector comes back as it is.

        Computed once for the same sound. Raises UsageError for what is no voice.
        """
        return read_voice(self.facts, prompt).encoded(self.engine.speaker)

    def _batch(
        self,
        texts: Sequence[str],
        prompts: PromptLike | Sequence[PromptLike],
        options: MetaVoiceOptions,
        batch_size: int,
        *,
        exactly: bool = False,
    ) -> Batch:
        """The texts, checked, their memory too."""
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

    def _parts(self, request: Request, run: _Run) -> Iterator[GenerationResult]:
        """The speech of all pieces, joined; one part a piece."""
        self.engine.host.reset_peak()
        vector = run.speaker(request)
        joiner, meter = Joiner(self.sample_rate), run.meter
        made, ids, ended = 0, 0, True
        for place, piece in enumerate(request.pieces):
            limit = piece.limit(request.frames(place, made))
            (sequence,) = run.say([piece], vector[None], [limit], request.sampling, 1)
            said = request.said(place, sequence, made)
            made, ids, ended = made + said.codes.shape[1], ids + said.ids, ended and said.ended
            codes = run.fill(piece, said, vector)
            (audio,) = run.decode([codes], [piece.noise], request.decoder)
            last = place == len(request.pieces) - 1 or made == request.max_frames
            sound = joiner.add(audio, last_of_piece=not last)
            reason: FinishReason | None = None
            if last:
                sound = np.concatenate([sound, joiner.finish()])
                reason = "stop" if ended and place == len(request.pieces) - 1 else "length"
            meter.add(len(sound))
            run.watch.tell(STAGES[-1], meter.seconds_made, run.expected)
            yield meter.result(
                sound,
                codes,
                seed=request.seed,
                token_count=ids,
                peak_bytes=self.engine.host.peak_bytes(),
                segment_idx=place,
                finish_reason=reason,
            )
            if last:
                return


class _Run:
    """The stages of one call: each tells the caller that it begins, and is timed. expected: seconds of speech
    in all, as far as is known.
    """

    def __init__(self, pipeline: MetaVoicePipeline, meter: Meter, watch: Watch, expected: float | None):
        self.engine, self.facts = pipeline.engine, pipeline.facts
        self.meter, self.watch, self.expected = meter, watch, expected

    def speaker(self, text: Request) -> np.ndarray:
        """The vector of a text's voice, (E,)."""
        with self._stage("speaker"):
            return text.voice.encoded(self.engine.speaker)

    def speakers(self, texts: Sequence[Request]) -> np.ndarray:
        """One vector a text, (B, E); a voice that several texts share is computed once."""
        known: dict[int, np.ndarray] = {}
        for text in texts:
            if id(text.voice) not in known:
                known[id(text.voice)] = self.speaker(text)
        return np.stack([known[id(text.voice)] for text in texts])

    def codes(self, batch: Batch, batch_size: int) -> tuple[list[list[Said]], list[list[np.ndarray]]]:
        """Both stages of every piece of every text: what the first said, and (Q, F) int32 codes."""
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
        """The first stage; arguments as of `Engine.say`."""
        with self._stage("first stage"):
            return self.engine.say(
                pieces, vectors, limits, sampling, batch_size=batch_size, check=self.watch.check
            )

    def fill(self, piece: Piece, said: Said, vector: np.ndarray) -> np.ndarray:
        """The second stage: codes of all codebooks, (Q, F) int32."""
        if not said.codes.shape[1]:
            return np.zeros((self.facts.second.n_codebooks, 0), np.int32)
        with self._stage("second stage"):
            return self.engine.fill(piece, said.codes, vector)

    def decode(
        self, codes: Sequence[np.ndarray], noise: Sequence[SpeechNoise], decoder: Decoder
    ) -> list[np.ndarray]:
        """(Q, F) of each piece → (L,) float32 samples each, brought to the target loudness."""
        sounding = [place for place, one in enumerate(codes) if one.shape[1]]
        made = [np.zeros(0, np.float32)] * len(codes)
        if not sounding:
            return made
        with self._stage("decoder"):
            waves = self.engine.decode(
                [codes[i] for i in sounding], [noise[i] for i in sounding], decoder, check=self.watch.check
            )
            for place, wave in zip(sounding, waves, strict=True):
                made[place] = normalize_loudness(wave, self.meter.sample_rate)
        return made

    def _stage(self, name: str) -> AbstractContextManager[None]:
        self.watch.tell(name, self.meter.seconds_made, self.expected)
        return self.meter.stage(name)
