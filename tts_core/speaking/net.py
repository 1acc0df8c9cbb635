"""The networks of a model on one side, as its speeches and their session call them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from tts_core.audio.voice_cache import VoiceCache
from tts_core.codecs.policy import CodecPolicy
from tts_core.config import Configs
from tts_core.errors import GenerationError
from tts_core.nn.beside import Pending, Then
from tts_core.nn.calls import apart
from tts_core.nn.host import Device
from tts_core.speaking.speech import Sound


class Net(Protocol):
    """What a session asks of a model's networks.

    stages: names of the stages that results report, in order; none for a model of one stage.
    heard: name under which progress tells of speech that is ready; none for a model of one stage.
    """

    host: Device
    stages: Sequence[str] = ()
    heard: str = ""

    @property
    def sample_rate(self) -> int:
        """Of the sound, in Hz."""
        ...

    def prepare(self, policy: CodecPolicy) -> None:
        """Do what the first windows would wait for."""

    def split(self, windows: Sequence[Sound]) -> Iterable[Sequence[int]]:
        """Divide windows that are due into calls of the codec, by their places."""
        ...

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
        """Decode the windows of a call now. check: called between its steps; may raise."""
        launched = self.launch(windows, policy)
        assert launched is not None, "what cannot be launched has a decode of its own"
        return launched.take()


class StreamNet(Net):
    """A network and a codec that decodes a piece window by window, with caches of recordings.

    kinds: of both.
    documents: texts of the model's own, by name.
    make_slots: of the network, `decoder.py` of the model.
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
        self._codes = VoiceCache()
        self._decode_piece = decode_piece or (lambda codes, memory: codec.decode_piece(codes, memory))

    @property
    def policy(self) -> CodecPolicy:
        """The codec's windows."""
        return self.codec.policy

    @property
    def sample_rate(self) -> int:
        return self.codec.config.sample_rate

    def _codes_of(self, samples: np.ndarray) -> Any:
        """Encode recordings, (1, L) float32 at the codec's rate, as codes (1, Q, F) of the framework."""
        return self.codec.encode(samples)

    def encode(self, samples: np.ndarray) -> np.ndarray:
        """Encode a recording, (L,) float32 at the codec's rate, as codes (Q, F) int32."""

        def encode() -> np.ndarray:
            return self.host.to_host(self._codes_of(samples[None]))[0]

        return self._codes.encoded([samples], lambda _: apart(self.host, encode)).copy()

    def split(self, windows: Sequence[Sound]) -> Iterable[Sequence[int]]:
        return [[place] for place in range(len(windows))]  # each changes the memory of its piece

    def launch(self, windows: Sequence[Sound], policy: CodecPolicy | None) -> Pending[list[np.ndarray]]:
        [window] = windows
        return Then(self._launch_window(window, policy), lambda samples: [samples])

    def _launch_window(self, window: Sound, policy: CodecPolicy | None) -> Pending[np.ndarray]:
        """Begin to decode a window. → (L,) float32."""
        assert policy is not None, "pieces are decoded in windows"
        memory = window.memory
        assert memory is not None, "a window of a stream has the memory of its piece"
        kept, pieces = memory.kept, [window.codes]
        if kept is None and memory.before is not None:
            cuts = policy.even_cuts(memory.before.shape[1])
            pieces = [*(memory.before[:, start:stop] for start, stop in cuts), *pieces]

        def work() -> Sequence[Any]:
            nonlocal kept
            samples: Any = None
            for codes in pieces:
                samples, kept = self._decode_piece(self.host.to_device(codes[None]), kept)
            return [samples]

        pending = Then(self.host.launch(work), first)
        memory.kept = kept
        return pending


def first(made: Sequence[np.ndarray]) -> np.ndarray:
    """Copy the samples of a launch, (1, L), out of memory that the next copies use again. → (L,) float32."""
    return made[0][0].astype(np.float32)
