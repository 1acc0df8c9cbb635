"""Dia2's engine: the running batch of both networks, and the codec of either side.

Source: nari-labs/dia2@8687268, Apache-2.0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tts_core.codecs import mimi, stream_calls
from tts_core.codecs.policy import CodecPolicy
from tts_core.codecs.stream_calls import DecodeStreams, StreamWindow
from tts_core.config import Configs
from tts_core.dia2.slots import Dia2Slots
from tts_core.errors import GenerationError
from tts_core.nn.beside import Pending, Then
from tts_core.nn.host import Device


class Dia2Engine:
    """Dia2's networks and their codec.

    tokenizer: the text of its file.
    make_slots: of the networks, `dia2/slots.py`.
    fault: of the networks, `dia2/guard.py`.
    decode_streams: the codec's calls of several streams; None where each window is a call.
    """

    def __init__(
        self,
        network: Any,
        codec: Any,
        tokenizer: str,
        host: Device,
        *,
        make_slots: Callable[..., Dia2Slots],
        fault: Callable[..., GenerationError],
        decode_streams: DecodeStreams | None = None,
    ):
        self.network, self.codec, self.tokenizer, self.host = network, codec, tokenizer, host
        self.configs: Configs = {"dia2": network.config, "mimi": codec.config}
        self._make_slots, self._fault, self._decode_streams = make_slots, fault, decode_streams

    @property
    def policy(self) -> CodecPolicy:
        """The codec's windows."""
        return self.codec.policy

    def slots(self, texts: int, rows: int, *, guided: bool) -> Dia2Slots:
        """Open a running batch for texts that read at most `rows` steps. guided: some may be."""
        return self._make_slots(self.network, texts=texts, rows=rows, guided=guided)

    def fault(self, tokens: np.ndarray, text: tuple[int, int]) -> GenerationError:
        """Build the error for logits that are not all finite.

        tokens: (T, 2 + Q), all inputs so far.  text: ids of both streams after the last step.
        """
        return self._fault(self.network, self.host.to_device(tokens), text)

    def encode(self, samples: np.ndarray) -> np.ndarray:
        """Encode samples. (L,) float32 → codes (Q, P) int32."""
        return self.host.to_host(self.codec.encode(samples[None], self.network.config.n_streams))[0]

    def decode(self, codes: np.ndarray, memory: Any) -> tuple[np.ndarray, Any]:
        """Decode the next frames of a stream. (Q, F) int32 → samples (L,) float32, and the next memory.

        memory: of the frames before; None at the start.
        """
        samples, memory = self.launch(codes, memory)
        return samples.take(), memory

    def launch(self, codes: np.ndarray, memory: Any) -> tuple[Pending[np.ndarray], Any]:
        """Begin the same, beside the steps where the host `overlaps`; the memory is for the next launch."""
        kept = memory

        def work() -> list[Any]:
            nonlocal kept
            samples, kept = self.codec.decode_piece(self.host.to_device(codes[None]), kept)
            return [samples]

        return Then(self.host.launch(work), lambda made: made[0][0].astype(np.float32)), kept

    def split(self, windows: Sequence[StreamWindow]) -> list[list[int]]:
        """Divide windows of several streams into the calls of `launch_streams`, by their places."""
        tail = -(-mimi.decode_tail(self.codec.config) // mimi.STEPS)
        most = stream_calls.most_fed(self.policy, tail, backend=self.host.backend)
        return stream_calls.split(windows, most=0 if self._decode_streams is None else most, tail=tail)

    def launch_streams(self, windows: Sequence[StreamWindow]) -> Pending[list[np.ndarray]]:
        """Begin to decode the windows of one call, beside the steps where the host `overlaps`."""
        assert self._decode_streams is not None, "every window is a call"
        return stream_calls.launch(self.host, self._decode_streams, windows)
