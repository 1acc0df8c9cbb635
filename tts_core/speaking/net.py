"""The networks of a model on one side, as its speeches and their session call them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Protocol

import numpy as np

from tts_core.audio.voice_cache import VoiceCache
from tts_core.codecs.policy import CALL, ONE_BY_ONE, ROWS, CodecPolicy, shared_shapes
from tts_core.config import Configs
from tts_core.errors import GenerationError
from tts_core.memory.fits import Plan, together
from tts_core.memory.machine import Machine
from tts_core.models import Documents
from tts_core.nn.beside import Pending, Then
from tts_core.nn.calls import apart
from tts_core.nn.guard import check_sound
from tts_core.nn.host import Device
from tts_core.nn.windows import ceil_power, in_powers
from tts_core.speaking.admission import Admission
from tts_core.speaking.running import RunningBatch
from tts_core.speaking.speech import ENDED, CodecMemory, Sound

SIDE_BY_SIDE = 8  # pieces of a text at once, at most


def damaged(*_: Any, **__: Any) -> GenerationError:
    """Stand in for the search for a layer with NaN or infinity, where a model has none."""
    raise NotImplementedError


class Net(Protocol):
    """What a session asks of a model's networks.

    kinds: of the network that steps, and of the codec.
    facts_of: the facts that requests need, from configurations and documents.
    stages: names of the stages that results report, in order; none for a model of one stage.
    sounding: name under which progress tells of speech that is ready.
    plan: of its memory.
    """

    kinds: ClassVar[tuple[str, str]]
    facts_of: ClassVar[Callable[[Configs, Documents], Any]]
    stages: Sequence[str] = ()
    sounding: str = "speech"
    plan: Plan
    network: Any
    codec: Any
    host: Device
    config: Any
    codec_config: Any
    configs: Configs
    facts: Any
    _make_slots: Callable[..., RunningBatch]
    _fault: Callable[..., GenerationError]
    _codes: VoiceCache

    def __init__(
        self,
        networks: Mapping[str, Any],
        documents: Documents,
        host: Device,
        *,
        make_slots: Callable[..., RunningBatch],
        fault: Callable[..., GenerationError] = damaged,
    ):
        """Take a side's networks, and texts of the model's parts, by kind.

        make_slots: of the network that steps, opens a running batch: `decoder.py` of the model.
        fault: of that network, builds the error that names the first layer with NaN or infinity.
        """
        self.network, self.codec = (networks[kind] for kind in self.kinds)
        self.configs = {kind: network.config for kind, network in networks.items()}
        self.config, self.codec_config = (self.configs[kind] for kind in self.kinds)
        self.facts, self.host = type(self).facts_of(self.configs, documents), host
        self._make_slots, self._fault, self._codes = make_slots, fault, VoiceCache()

    @property
    def sample_rate(self) -> int:
        """Of the sound, in Hz."""
        return self.codec_config.sample_rate

    @property
    def policy(self) -> CodecPolicy | None:
        """The codec's windows; None for a codec without any."""
        return None

    def fit(self, machine: Machine) -> None:
        """Let the codec use windows that fit the memory that networks leave."""

    def encode(self, samples: np.ndarray) -> np.ndarray:
        """Encode a recording, (L,) float32 at the codec's rate, as codes (Q, F) int32. It is kept."""

        def encode(recordings: Sequence[np.ndarray]) -> np.ndarray:
            return self.host.to_host(self._codes_of(recordings[0][None]))[0]

        return self._encoded(self._codes, [samples], encode)

    def _codes_of(self, samples: np.ndarray) -> Any:
        """Encode recordings, (1, L) float32 at the codec's rate, as codes (1, Q, F) of the framework."""
        return self.codec.encode(samples)

    def _encoded(
        self, known: VoiceCache, recordings: Sequence[np.ndarray], encode: Callable[[Any], np.ndarray]
    ) -> np.ndarray:
        """Encode recordings of a voice, apart from other work, unless the result is known."""
        return known.encoded(recordings, lambda given: apart(self.host, partial(encode, given))).copy()

    def check(self, job: Any) -> None:
        """Raise ResourceError, naming what would fit, unless a job fits in the free memory."""
        self.plan.check_running(self.configs, job, self.host.machine(self.policy))

    def admission(
        self,
        places: int,
        whole: Callable[[int], Any],
        policy: CodecPolicy | None = None,
        holds: Callable[[Sequence[Any]], bool] = lambda _: True,
    ) -> Admission:
        """Build the admission of a running batch; arguments as of Admission."""
        policy = policy or self.policy
        return Admission(self.plan, self.configs, self.host, places, whole, policy=policy, holds=holds)

    def together(self, requests: Sequence[Any], most: int | None = None) -> tuple[Any, int]:
        """Return a job that bounds each of several requests, and the number of places to speak them at once.

        most: of these.

        Raises ResourceError for too little memory.
        """
        jobs = [request.job() for request in requests]
        longest = replace(together(jobs), batch=1)
        self.check(longest)
        return longest, min(len(requests), most or len(requests))

    def is_late(self, requests: Sequence[Any], places: int) -> bool:
        """Return True if sound of requests that join together is decoded after the last step."""
        return False

    def longest(self, first: Any) -> Any:
        """Return a job that bounds every sentence of a text that comes. first: request of the first one."""
        return None

    def windows(self, job: Any, *, streamed: bool) -> CodecPolicy | None:
        """Return the codec's windows of a session; None decodes each piece as a whole. job: of all its
        requests, None for any.
        """
        return None

    def open(self, places: int, job: Any, policy: CodecPolicy | None) -> tuple[RunningBatch, Admission]:
        """Open a running batch. job: bounds each request that will join; None for any.

        Raises ResourceError for too little memory.
        """
        ...

    def prepare(self, policy: CodecPolicy, places: int) -> None:
        """Do what the first windows of a session would wait for."""

    def silence(self, frames: int) -> Sound:
        """Build a window of so many frames of the first code, for a rehearsal."""
        return Sound(np.zeros((self.codec_config.n_codebooks, frames), np.int32), 0)

    def split(self, windows: Sequence[Sound], policy: CodecPolicy | None) -> Iterable[Sequence[int]]:
        """Divide windows that are due into calls of the codec, by their places. Of a stream, it takes the
        first; the others wait for that.
        """
        ...

    def most_rows(self, window: Sound, policy: CodecPolicy | None) -> int:
        """Count the streams that may share a window's call; 1 where it does not pay to wait for others."""
        return 1

    def launch(
        self, windows: Sequence[Sound], policy: CodecPolicy | None
    ) -> Pending[list[np.ndarray]] | None:
        """Begin to decode the windows of a call, each of at least one frame, beside the steps where the host
        `overlaps`. Returns samples (L,) float32 each; None for work that cannot be done beside.

        policy: of the windows of their streams.
        """
        ...

    def decode(
        self, windows: Sequence[Sound], policy: CodecPolicy | None, check: Callable[[], None]
    ) -> list[np.ndarray]:
        """Decode the windows of a call now. If it fails, or a sound is wrong, their streams are as before.

        check: called between its steps; may raise.
        """
        memories = [window.memory for window in windows if window.memory is not None]
        states = [memory.state for memory in memories]
        try:
            made = self._decode_now(windows, policy, check)
            for samples in made:
                check_sound(samples)
        except Exception:
            for memory, state in zip(memories, states, strict=True):
                memory.state = state
            raise
        return made

    def _decode_now(
        self, windows: Sequence[Sound], policy: CodecPolicy | None, check: Callable[[], None]
    ) -> list[np.ndarray]:
        """Decode the windows of a call. check: as in `decode`."""
        launched = self.launch(windows, policy)
        assert launched is not None, "what cannot be launched has a way of its own"
        return launched.take()


class StreamNet(Net):
    """A network and a codec that decodes a piece window by window.

    decode_window: as the codec's, where a side has a faster form.
    """

    def __init__(
        self, *given: Any, decode_window: Callable[[Any, Any], tuple[Any, Any]] | None = None, **how: Any
    ):
        super().__init__(*given, **how)
        self._decode_window = decode_window or (lambda codes, state: self.codec.decode_window(codes, state))

    @property
    def policy(self) -> CodecPolicy:
        """The codec's windows."""
        return self.codec.policy

    def silence(self, frames: int) -> Sound:
        return replace(super().silence(frames), memory=CodecMemory())

    def prepare(self, policy: CodecPolicy, places: int) -> None:
        if self.host.overlaps and self._shares(policy):
            books = self.codec_config.n_codebooks
            rehearse(self.host, self._decode_window, books, shared_shapes(places))

    def streamed(self) -> CodecPolicy:
        """Return the codec's windows of speech that is heard while it is spoken.

        Where streams share no calls, windows of one frame do not pay: on a CPU they take 0.28 s, those of two
        0.32 (Qwen3-TTS), so that a text of 40 frames would take 27 % longer.
        """
        shared = self.policy.in_rows()
        return shared if self._shares(shared) else self.policy

    def split(self, windows: Sequence[Sound], policy: CodecPolicy | None) -> Iterable[Sequence[int]]:
        return in_calls(
            windows, lambda window: self._fed(window, policy), lambda window: self.most_rows(window, policy)
        )

    def most_rows(self, window: Sound, policy: CodecPolicy | None) -> int:
        if policy is None or not self._shares(policy):
            return 1
        most = CALL if self.host.overlaps else min(CALL, policy.max_frames)
        return min(ROWS, most // self._fed(window, policy))

    def _shares(self, policy: CodecPolicy | None) -> bool:
        """Return True if windows of several streams share calls."""
        is_shared = policy is not None and policy.shared is not None
        return is_shared and self.host.backend not in ONE_BY_ONE

    def _fed(self, window: Sound, policy: CodecPolicy | None) -> int:
        """Count the frames to feed: in shared calls a power of two, also for what is left at the end."""
        frames = window.codes.shape[1]
        return ceil_power(frames) if self._shares(policy) else frames

    def launch(self, windows: Sequence[Sound], policy: CodecPolicy | None) -> Pending[list[np.ndarray]]:
        assert policy is not None, "pieces are decoded in windows"
        memories = [window.memory for window in windows if window.memory is not None]
        lengths, fed = [window.codes.shape[1] for window in windows], self._fed(windows[0], policy)
        rows = zip(windows, lengths, strict=True)
        codes = np.stack([np.pad(item.codes, ((0, 0), (0, fed - length))) for item, length in rows])
        states = list[Any]()

        def work() -> Sequence[Any]:
            nonlocal states
            begun = [self._begun(memory, policy) for memory in memories]
            samples, states = self._decode_window(self.host.to_device(codes), begun)
            return [samples]

        def cut(made: Sequence[np.ndarray]) -> list[np.ndarray]:
            [rows] = made
            ends = [length * rows.shape[1] // fed for length in lengths]
            # copies: the next launch uses their memory again
            return [row[:end].astype(np.float32) for row, end in zip(rows, ends, strict=True)]

        pending = Then(self.host.launch(work), cut)
        for memory, state, length in zip(memories, states, lengths, strict=True):
            memory.state = state if length == fed else ENDED
        return pending

    def _begun(self, memory: CodecMemory, policy: CodecPolicy) -> Any:
        """Return the state of a stream before its next window, after the frames that it continues."""
        assert memory.state is not ENDED, "only the last window of a stream is filled up"
        state, before = memory.state, memory.before
        if state is None and before is not None:
            for start, stop in policy.even_cuts(before.shape[1]):
                codes = self.host.to_device(before[None, :, start:stop])
                _, [state] = self._decode_window(codes, [state])
        return state


def rehearse(
    host: Device, decode_window: Callable[..., tuple[Any, Any]], books: int, shapes: Sequence[tuple[int, int]]
) -> None:
    """Let calls that streams share be captured, each shape at its second time.

    shapes: rows and frames, the largest first, in whose memory all others fit.
    """
    for rows, frames in shapes:
        codes = np.zeros((rows, books, frames), np.int32)
        for _ in range(2):
            host.launch(lambda: [decode_window(host.to_device(codes), [None] * rows)[0]]).take()  # noqa: B023


def in_calls(
    windows: Sequence[Sound], fed: Callable[[Sound], int], most: Callable[[Sound], int]
) -> Iterator[Sequence[int]]:
    """Divide windows of streams into calls, by their places: of each stream the next, which share the call of
    a power of two of others that feed as many frames.

    fed: frames of a window.  most: rows of its call.
    """
    alike, streams = dict[int, list[int]](), set[CodecMemory | None]()
    for index, window in enumerate(windows):
        if window.memory not in streams:
            alike.setdefault(fed(window), []).append(index)
        streams.add(window.memory)
    for indices in alike.values():
        yield from in_powers(indices, most(windows[indices[0]]))


def at_once(request: Any) -> int:
    """Count the pieces of a request that can be spoken at once: one, if it limits the frames of all."""
    return len(request.pieces) if request.max_frames is None else 1
