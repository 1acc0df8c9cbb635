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

from tts_core.codecs.mimi import MimiConfig
from tts_core.codecs.policy import CodecPolicy
from tts_core.config import Configs
from tts_core.dia2.config import Dia2Config
from tts_core.dia2.memory import Dia2Job
from tts_core.dia2.options import Dia2Changes, Dia2Options
from tts_core.dia2.request import Facts, Request, live, request
from tts_core.dia2.session import Dia2Session, check_memory
from tts_core.dia2.slots import Slots
from tts_core.errors import GenerationError
from tts_core.live.stream import checked_pieces
from tts_core.nn.beside import Pending
from tts_core.nn.calls import named, named_parts
from tts_core.nn.host import Host
from tts_core.options import changed
from tts_core.pipeline import Progress, PromptLike, Watch
from tts_core.printable import counted
from tts_core.prompt import Prompt
from tts_core.results import GenerationResult, join
from tts_core.speech.batch import requests_of
from tts_core.speech.together import Single, streamed, together

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

    def slots(self, texts: int, rows: int, *, guided: bool) -> Slots:
        """Open a running batch for texts that read at most `rows` steps. guided: some may be."""
        ...

    def fault(self, tokens: np.ndarray, text: tuple[int, int]) -> GenerationError:
        """Build the error for logits that are not all finite.

        tokens: (T, 2 + Q), all inputs so far.  text: ids of both streams after the last step.
        """
        ...

    def encode(self, samples: np.ndarray) -> np.ndarray:
        """Encode samples. (L,) float32 → codes (Q, P) int32."""
        ...

    def decode(self, codes: np.ndarray, memory: Any) -> tuple[np.ndarray, Any]:
        """Decode the next frames of a stream. (Q, F) int32 → samples (L,) float32, and the next memory.

        memory: of the frames before; None at the start.
        """
        ...

    def launch(self, codes: np.ndarray, memory: Any) -> tuple[Pending[np.ndarray], Any]:
        """Begin the same, beside the steps where the host `overlaps`; the memory is for the next launch."""
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
        """Speak one text and return all of `stream` as one result, with its arguments and errors.

        The codec's windows are longer than a stream's: samples are equal up to rounding.
        """
        asked = self.request(text, changed(options or Dia2Options(), changes), prompt)
        policy = self.engine.policy.unheard()
        return join(list(self._speak(asked, None, Watch(progress, cancel), policy)))

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
        asked = changed(options or Dia2Options(), changes)
        if isinstance(text, str):
            return self.speak(self.request(text, asked, prompt), progress=progress, cancel=cancel)
        opened = live(self.facts, "", asked, prompt)
        return self._speak(opened, checked_pieces(text), Watch(progress, cancel), self.engine.policy)

    def request(self, text: str, options: Dia2Options, prompt: PromptLike = None) -> Request:
        """Check a caller's arguments without running a network. Raises UsageError."""
        return request(self.facts, text, options, prompt)

    def speak(
        self, request: Request, *, progress: Tell | None = None, cancel: threading.Event | None = None
    ) -> Iterator[GenerationResult]:
        """Stream the speech of a request. Raises ResourceError, at the call, for too little memory."""
        return self._speak(request, None, Watch(progress, cancel), self.engine.policy)

    def session(self, places: int, *, streamed: bool = True) -> Dia2Session:
        """Open a running batch; arguments as in Pipeline. Raises ResourceError for too little memory."""
        policy = self.engine.policy
        return Dia2Session(
            self.engine, places, self._rehearsal, policy=policy if streamed else policy.unheard()
        )

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
        asked = requests_of(self.request, texts, changed(options or Dia2Options(), changes), prompts)
        return self._together(asked, Watch(progress, cancel))

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
        exactly = replace(changed(options or Dia2Options(), changes), as_written=True)
        asked = requests_of(self.request, texts, exactly, prompts)
        spoken = self._together(asked, Watch(None, None), sound=False)
        return [one.codes for one in spoken]

    def _speak(
        self, request: Request, pieces: Iterator[str] | None, watch: Watch, policy: CodecPolicy
    ) -> Iterator[GenerationResult]:
        """Speak one request. pieces: of text that is still to come.  policy: the codec's windows.

        Checks the memory at the call.
        """
        if request.is_open:
            _LOG.info("dia2: text as it comes")
        else:
            _LOG.info(
                "dia2: %s, about %.1f s of speech", counted(len(request.pieces), "piece"), request.seconds
            )
        check_memory(self.engine, request.job())
        return self._parts(request, pieces, watch, policy)

    @named_parts
    def _parts(
        self, request: Request, pieces: Iterator[str] | None, watch: Watch, policy: CodecPolicy
    ) -> Iterator[GenerationResult]:
        """Yield a text's speech window by window."""
        session = Dia2Session(self.engine, 1, self._rehearsal, policy=policy, job=request.job())
        yield from streamed(session, request, watch, request.seconds, pieces)

    @named
    def _together(
        self, asked: Sequence[Request], watch: Watch, *, sound: bool = True
    ) -> list[GenerationResult]:
        """Speak requests in one batch, each as soon as it fits; in their order.

        sound: False for codes alone.
        """
        longest = replace(Dia2Job.together([one.job() for one in asked]), texts=1)
        policy = self.engine.policy.unheard()

        def session(texts: int) -> Dia2Session:
            return Dia2Session(self.engine, texts, self._rehearsal, policy=policy, job=longest, sound=sound)

        lines = [Single(one) for one in asked]
        together(session, lines, watch, sum(one.seconds for one in asked))
        return [line.result() for line in lines]

    def _rehearsal(self) -> Request:
        return self.request("[S1] Yes.", Dia2Options(seed=0, max_frames=2))
