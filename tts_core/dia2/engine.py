"""Dia2's engine: the running batch of both networks, and the codec of either side.

Source: nari-labs/dia2@8687268, Apache-2.0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tts_core.codecs.policy import CodecPolicy
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
    decode_piece: as the codec's, where a side has a faster form.
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
        decode_piece: Callable[[Any, Any], tuple[Any, Any]] | None = None,
    ):
        self.network, self.codec, self.tokenizer, self.host = network, codec, tokenizer, host
        self.configs: Configs = {"dia2": network.config, "mimi": codec.config}
        self._make_slots, self._fault = make_slots, fault
        self._decode_piece = decode_piece or self._by_codec

    def _by_codec(self, codes: Any, memory: Any) -> tuple[Any, Any]:
        return self.codec.decode_piece(codes, memory)

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
            samples, kept = self._decode_piece(self.host.to_device(codes[None]), kept)
            return [samples]

        return Then(self.host.launch(work), lambda made: made[0][0].astype(np.float32)), kept
