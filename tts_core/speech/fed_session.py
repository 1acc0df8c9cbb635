"""The running batch of models that take text while they speak: requests whose pieces follow each other, in
windows that the codec decodes with its memory of those before.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from tts_core.audio.delivery import Delivery, Pacing
from tts_core.audio.voice_cache import VoiceCache
from tts_core.config import Configs
from tts_core.errors import GenerationError
from tts_core.nn.beside import Pending, Then
from tts_core.nn.calls import apart
from tts_core.nn.guard import check_sound, checked
from tts_core.nn.host import Device
from tts_core.results import FinishReason, GenerationResult, Meter
from tts_core.serving.session import Event, Part
from tts_core.serving.slot_session import Member, SlotSession
from tts_core.speaking.speech import CodecMemory
from tts_core.speaking.windows import MemberWindow, Sounding
from tts_core.text.captions import Word


class FedEngine(ABC):
    """A model's network and its codec, on either side, with caches of recordings.

    kinds: of both.
    documents: texts of the model's own, by name.
    make_slots: of the network, `slots.py` of the model.
    fault: builds the error that names the first layer with NaN or infinity.
    decode_piece: as the codec's, where a side has a faster form.
    """

    kinds: tuple[str, str]

    def __init__(
        self,
        documents: Mapping[str, str],
        network: Any,
        codec: Any,
        host: Device,
        *,
        make_slots: Callable[..., Any],
        fault: Callable[..., GenerationError],
        decode_piece: Callable[[Any, Any], tuple[Any, Any]] | None = None,
    ):
        self.documents, self.network, self.codec, self.host = documents, network, codec, host
        self.configs: Configs = dict(zip(self.kinds, (network.config, codec.config), strict=True))
        self._make_slots, self._fault = make_slots, fault
        self._codes, self._vectors = VoiceCache(), VoiceCache()
        self._decode_piece = decode_piece or (lambda codes, memory: codec.decode_piece(codes, memory))

    @property
    def policy(self) -> Any:
        """The codec's windows."""
        return self.codec.policy

    @abstractmethod
    def _codes_of(self, samples: np.ndarray) -> Any:
        """Encode recordings, (1, L) float32 at the codec's rate, as codes (1, Q, F) of the framework."""

    def encode(self, samples: np.ndarray) -> np.ndarray:
        """Encode a recording, (L,) float32 at the codec's rate, as codes (Q, F) int32."""

        def encode() -> np.ndarray:
            return self.host.to_host(self._codes_of(samples[None]))[0]

        return self._codes.encoded([samples], lambda _: apart(self.host, encode)).copy()

    def launch(self, pieces: Sequence[np.ndarray], memory: Any) -> tuple[Pending[np.ndarray], Any]:
        """Begin to decode the next frames of a stream, beside the steps where the host `overlaps`.

        pieces: (Q, F) int32 each, that follow each other.
        memory: of the frames before; None at the start.
        Returns the samples of the last piece, (L,) float32, and the memory for the next launch.
        """
        kept = memory

        def work() -> list[Any]:
            nonlocal kept
            samples: Any = None
            for codes in pieces:
                samples, kept = self._decode_piece(self.host.to_device(codes[None]), kept)
            return [samples]

        return Then(self.host.launch(work), only), kept


def only(made: Sequence[np.ndarray]) -> np.ndarray:
    """Copy the samples of a launch, (1, L), out of memory that the next copies use again. → (L,) float32."""
    return made[0][0].astype(np.float32)


@dataclass(frozen=True, eq=False)
class PieceWindow:
    """Frames of a piece that are known, (Q, F).

    memory: of its piece.
    token_count: steps so far.
    words: that begin in it; in a piece's last window also those that begin later.
    is_last: it ends its piece.
    finish_reason: of the speech, with its last window.
    pacing: of the piece that it ends, where the text goes on.
    """

    codes: np.ndarray
    memory: CodecMemory
    token_count: int
    words: Sequence[Word] = ()
    is_last: bool = False
    finish_reason: FinishReason | None = None
    pacing: Pacing | None = None


class FedSpeaking(Member, ABC):
    """A request that has joined, and the parts of its speech.

    policy: the codec's windows; None decodes pieces as a whole.
    has_sound: False for codes alone.
    delivery: of its parts.
    """

    def __init__(self, member: Member, request: Any, engine: Any, *, policy: Any, has_sound: bool):
        super().__init__(**vars(member))
        self.request, self.engine, self.policy, self.has_sound = request, engine, policy, has_sound
        rate = request.facts.codec.sample_rate
        self.meter = Meter(rate)
        self.delivery = Delivery(request.pacing, rate, more=request.is_open)
        self.place = self._segment = 0  # of the piece under way; parts so far

    @abstractmethod
    def windows(self) -> Iterator[PieceWindow]:
        """Yield the windows that are complete and not yielded yet; the last one of a piece ends it."""

    def launch(self, window: PieceWindow) -> Pending[np.ndarray]:
        """Begin to decode a window of at least one frame, beside the steps where the host `overlaps`."""
        samples, window.memory.kept = self.engine.launch([window.codes], window.memory.kept)
        return samples

    def decode(self, window: PieceWindow) -> np.ndarray:
        """Decode a window to samples (L,). Raises GenerationError for NaN or infinity."""
        if not self.has_sound or not window.codes.shape[1]:
            return np.zeros(0, np.float32)
        samples = self.launch(window).take()
        check_sound(samples)
        return samples

    def part(self, window: PieceWindow, sound: np.ndarray) -> GenerationResult:
        """Build the next part from a window and its samples (L,)."""
        self.delivery.time(window.words)
        if window.pacing is not None:
            self.delivery.extend(window.pacing)
        reason = window.finish_reason
        audio = self.delivery.add(np.clip(sound, -1, 1), last_of_piece=window.is_last and reason is None)
        if reason is not None:
            audio = np.concatenate([audio, self.delivery.finish()])
        self.meter.add(len(audio))
        self._segment += 1
        return self.meter.result(
            audio,
            window.codes,
            seed=self.request.seed if self.request.noise is None else None,
            token_count=window.token_count,
            peak_bytes=self.engine.host.peak_bytes(),
            segment_idx=self._segment - 1,
            finish_reason=reason,
            cues=self.delivery.cues(),
            words=self.delivery.words(),
        )


NOTHING = PieceWindow(np.zeros((0, 0), np.int32), CodecMemory(), 0)
One = TypeVar("One", bound=FedSpeaking)


class FedSession(SlotSession[One]):
    """A running batch of at most `places` requests over the slots of a network.

    policy: the codec's windows; None decodes each piece as a whole.
    has_sound: False for codes alone, without samples.
    """

    def __init__(self, engine: FedEngine, slots: Any, places: int, *, policy: Any, has_sound: bool):
        host, self.policy, self.has_sound = engine.host, policy, has_sound
        self._has_listeners = policy is not None and policy.is_heard
        sounding = Sounding[MemberWindow[One, PieceWindow], np.ndarray](
            host,
            self._decode,
            launch=self._launch if has_sound and host.overlaps else None,
            split=lambda asked: [[place] for place in range(len(asked))],  # each changes its codec's memory
            owner=lambda asked: asked.one,
            is_wanted=lambda asked: asked.one.key in self.members,
            most=places if self._has_listeners else None,
        )
        super().__init__(slots, places, host, sounding)
        host.reset_peak()

    @abstractmethod
    def hear(self, one: One, text: str | None) -> None:
        """Take further text of a request; None is its end. Raises UsageError."""

    @property
    @abstractmethod
    def is_idle(self) -> bool:
        """True if no step runs, and none has something to do."""

    def join(self, request: Any, *, more: bool = False, cancel: threading.Event | None = None) -> int:
        if not (more or request.is_open):
            return super().join(request, cancel=cancel)
        key = super().join(request.opened(), cancel=cancel)
        if not more:
            try:
                self.end(key)
            except Exception:
                self.leave(key)
                raise
        return key

    def feed(self, key: int, text: str) -> None:
        self.hear(self.members[key], text)

    def end(self, key: int) -> None:
        if key in self.members:
            self.hear(self.members[key], None)

    def ask(self, one: One) -> None:
        """Let the windows of a request that are known be decoded."""
        self.sounding.add([MemberWindow(one, window) for window in one.windows()])

    def fail_after(self, one: One, error: Exception) -> None:
        """Let a request that cannot go on fail after what was spoken."""
        self.turns.end(one)
        self.sounding.fail(MemberWindow(one, NOTHING), error)

    def heard(self) -> list[Event]:
        """Give out windows that are decoded.

        It waits for one if nothing else runs, or if the only listener waits for the first sound.
        """
        [*members] = self.members.values()
        alone = len(members) == 1 and self._has_listeners and not members[0].meter.samples
        return self.give_out(self.sounding.ended(wait=alone or self.is_idle), self._give)

    def _give(self, one: One, window: PieceWindow, sound: np.ndarray) -> list[Event]:
        part = Part(one.key, one.part(window, sound))
        if window.finish_reason is not None:
            self.leave(one.key)
        return [part]

    def _launch(
        self, asked: Sequence[MemberWindow[One, PieceWindow]]
    ) -> Pending[list[np.ndarray | Exception]] | None:
        [each] = asked
        if not each.window.codes.shape[1]:
            return None
        return Then(each.one.launch(each.window), lambda sound: [checked(sound)])

    def _decode(self, asked: Sequence[MemberWindow[One, PieceWindow]]) -> list[np.ndarray]:
        [each] = asked
        return [each.one.decode(each.window)]
