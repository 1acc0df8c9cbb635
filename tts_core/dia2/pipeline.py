"""Dia2's pipeline: text and recordings in, codes, speech and the times of words out.

Source: nari-labs/dia2@8687268, Apache-2.0.
Differs from upstream: text may come while speech goes out; a long text is spoken in pieces that have the same
voices; recordings come with their words.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol, Unpack

import numpy as np

from tts_core.audio.delivery import Delivery, Pacing
from tts_core.codecs.mimi import MimiConfig
from tts_core.codecs.policy import CodecPolicy
from tts_core.config import Configs
from tts_core.dia2.config import Dia2Config
from tts_core.dia2.memory import check_running
from tts_core.dia2.options import Dia2Changes, Dia2Options
from tts_core.dia2.pieces import Piece
from tts_core.dia2.prefix import Prefix
from tts_core.dia2.reading import Feed
from tts_core.dia2.request import Facts, Request, longest_frames, one_each, request
from tts_core.dia2.run import Run
from tts_core.dia2.sampling import Sampling
from tts_core.errors import UsageError
from tts_core.nn.host import Host
from tts_core.nn.noise import Noise
from tts_core.options import changed
from tts_core.pipeline import Progress, PromptLike, Watch
from tts_core.prompt import Prompt
from tts_core.results import FinishReason, GenerationResult, Meter, join
from tts_core.serving.one_by_one import OneByOne
from tts_core.serving.session import Session

Tell = Callable[[Progress], None]
_LOG = logging.getLogger("tts_core")


class Engine(Protocol):
    """Dia2's networks on one side, `dia2/engine.py`."""

    @property
    def configs(self) -> Configs:
        """The configurations of its parts, by kind."""
        ...

    @property
    def tokenizer(self) -> str:
        """The text of the tokenizer's file."""
        ...

    @property
    def policy(self) -> CodecPolicy:
        """The codec's windows."""
        ...

    @property
    def host(self) -> Host:
        """The device that the networks run on."""
        ...

    def steps(self, run: Run, sampling: Sampling, noise: Noise) -> Iterator[Run]:
        """Read the prefix, then run step by step; yield the run before its first step and after each."""
        ...

    def encode(self, samples: np.ndarray) -> np.ndarray:
        """Encode samples. (L,) float32 → codes (Q, P) int32."""
        ...

    def decode(self, codes: np.ndarray, memory: Any) -> tuple[np.ndarray, Any]:
        """Decode the next frames of a stream. (Q, F) int32 → samples (L,) float32, and the next memory.

        memory: of the frames before; None at the start.
        """
        ...


class Dia2Pipeline:
    """A Dia2 of either side with its codec. Build it with `load`."""

    def __init__(self, engine: Engine):
        self.engine = engine
        self.facts = Facts.of(engine.configs, engine.tokenizer)
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
        """Speak one text and return the parts of `stream` as one result, with its arguments and errors."""
        asked = self.request(text, changed(options or Dia2Options(), changes), prompt)
        return join(list(self.speak(asked, progress=progress, cancel=cancel)))

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

        text: or an iterable of its pieces, each spoken while the next one is awaited; at most two minutes.
        prompt: a recording of each speaker, with its words and their times.  options: settings; `changes`
        replace some of their fields. A long text is spoken in pieces with the same voices: the recordings',
        else those of the first piece. Their seeds are derived from the first.
        progress: called after every part.  cancel: once set, the stream ends with CancelledError.
        Raises UsageError for a text, recording or value that cannot be used and ResourceError for too little
        memory, both at the call, before any network runs; for pieces of text, as they come.
        """
        asked = changed(options or Dia2Options(), changes)
        if isinstance(text, str):
            return self.speak(self.request(text, asked, prompt), progress=progress, cancel=cancel)
        feed = Feed(self.facts.reader, text)
        return self._speak(request(self.facts, None, asked, prompt), feed, progress, cancel)

    def request(self, text: str, options: Dia2Options, prompt: PromptLike = None) -> Request:
        """Check a caller's arguments without running a network. Raises UsageError."""
        return request(self.facts, text, options, prompt)

    def speak(
        self, request: Request, *, progress: Tell | None = None, cancel: threading.Event | None = None
    ) -> Iterator[GenerationResult]:
        """Stream the speech of a request. Raises ResourceError, at the call, for too little memory."""
        return self._speak(request, None, progress, cancel)

    def session(self, places: int) -> Session:
        """Open a session of one place: requests are spoken one by one."""
        return OneByOne(self, lambda: self.request("[S1] Yes.", Dia2Options(seed=0, max_frames=2)))

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
        """Speak several texts, one after the other; each result equals that of the text by itself.

        prompts: one for all, or one per text.  seed, max_frames and noise: one for all, or one per text. All
        are checked before the first is spoken. Raises UsageError and ResourceError.
        """
        each = one_each(changed(options or Dia2Options(), changes), texts)
        given = [prompts] * len(texts) if prompts is None or isinstance(prompts, Prompt) else list(prompts)
        if len(given) != len(texts):
            raise UsageError(
                f"prompts: {len(given)} for {len(texts)} texts; give one per text, None for a text without"
            )
        asked = [self.request(*one) for one in zip(texts, each, given, strict=True)]
        return [join(list(self.speak(one, progress=progress, cancel=cancel))) for one in asked]

    def generate_codes(
        self,
        texts: Sequence[str],
        prompts: Prompt | Sequence[PromptLike] | None = None,
        *,
        options: Dia2Options | None = None,
        **changes: Unpack[Dia2Changes],
    ) -> list[np.ndarray]:
        """Generate codec codes of several texts: (Q, T) int32 each. Texts are read as the original does.

        Other arguments and errors as in `generate_batch`.
        """
        exactly = replace(changed(options or Dia2Options(), changes), as_written=True)
        return [one.codes for one in self.generate_batch(texts, prompts=prompts, options=exactly)]

    def _speak(
        self, request: Request, feed: Feed | None, progress: Tell | None, cancel: threading.Event | None
    ) -> Iterator[GenerationResult]:
        _LOG.info("dia2: %d piece(s), about %.1f s of speech", len(request.pieces), request.seconds)
        meter, watch, host = Meter(self.sample_rate), Watch(progress, cancel), self.engine.host
        check_running(
            self.engine.configs,
            request.job(),
            dtype=host.dtype,
            backend=host.backend,
            free=host.free_bytes(),
            policy=self.engine.policy,
        )
        return self._parts(request, feed, meter, watch)

    def _parts(
        self, request: Request, feed: Feed | None, meter: Meter, watch: Watch
    ) -> Iterator[GenerationResult]:
        """Yield a text's speech piece by piece, each window by window."""
        self.engine.host.reset_peak()
        watch.tell("prompt", 0, request.seconds)
        prefix = request.prefix(self.engine.encode)
        delivery = Delivery(request.pacing, self.sample_rate)
        segment, rows, left = 0, 0, request.max_frames
        for place, piece in enumerate(request.pieces):
            run = self._run(request, piece, prefix, left, keeps_prefix=request.include_prefix and place == 0)
            run.is_open = feed is not None
            for codes, audio, words in self._windows(run, request, place, feed, watch):
                ended = run.is_done and codes is None
                last = ended and (place == len(request.pieces) - 1 or run.finish_reason == "length")
                delivery.time(words)
                if feed is not None and ended:
                    delivery.pacing = Pacing((feed.said,), (None, None), request.pacing.speed)
                sound = delivery.add(audio, last_of_piece=ended and not last)
                reason: FinishReason | None = None
                if last:
                    sound = np.concatenate([sound, delivery.finish()])
                    reason = run.finish_reason
                meter.add(len(sound))
                watch.tell("speech", meter.seconds_made, request.seconds)
                yield meter.result(
                    sound,
                    np.zeros((self.config.n_streams, 0), np.int32) if codes is None else codes,
                    seed=request.seeds[0],
                    token_count=rows + run.step - run.start,
                    peak_bytes=self.engine.host.peak_bytes(),
                    segment_idx=segment,
                    finish_reason=reason,
                    cues=delivery.cues(),
                    words=delivery.words(),
                )
                segment += 1
            rows += run.step - run.start
            if left is not None:
                left -= run.frames
            if run.finish_reason == "length":
                return
            if prefix is None and place < len(request.pieces) - 1:
                prefix = run.beginning(request.voice_frames)

    def _run(
        self, request: Request, piece: Piece, prefix: Prefix | None, left: int | None, *, keeps_prefix: bool
    ) -> Run:
        return Run(
            self.config,
            piece.entries,
            prefix=prefix,
            initial_padding=request.initial_padding,
            max_frames=None if left is None or left >= longest_frames(self.config) else left,
            keeps_prefix=keeps_prefix,
        )

    def _windows(
        self, run: Run, request: Request, place: int, feed: Feed | None, watch: Watch
    ) -> Iterator[tuple[np.ndarray | None, np.ndarray, list[Any]]]:
        """Yield codes (Q, F), their samples (L,) and the words that begin in them.

        The last item has no codes: it ends the run, with the words that begin later.
        """
        made, told, memory = 0, 0, None
        policy, size = self.engine.policy, self.engine.policy.first_frames
        for _ in self.engine.steps(run, request.sampling, request.noise[place]):
            if run.step == run.start:
                _warn_of_late(run)
            watch.check()
            while run.frames - made >= size or (run.is_done and run.frames > made):
                stop = min(made + size, run.frames)
                codes = run.codes(made, stop)
                audio, memory = self.engine.decode(codes, memory)
                words = run.words(self.codec_config.frame_rate)[told:]
                begun = sum(word.start * self.codec_config.frame_rate < stop for word in words)
                yield codes, np.clip(audio, -1, 1), words[:begun]
                made, told, size = stop, told + begun, min(2 * size, policy.max_frames)
            while feed is not None and run.waits:
                run.extend(feed.more())
                run.is_open = feed.is_open
        yield None, np.zeros(0, np.float32), run.words(self.codec_config.frame_rate)[told:]


def _warn_of_late(run: Run) -> None:
    """Log words of the recordings that come too late, or too close together, to be taken."""
    if late := run.late_words():
        _LOG.warning(
            "prompt: %d word(s) of the recordings are spoken again, from %r on: they come too close to each "
            "other or to the end; give them earlier times, or leave them out",
            len(late),
            late[0],
        )
