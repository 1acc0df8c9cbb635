"""Dia2's engine: both networks, step by step, and the codec."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from torch_ref.codecs.mimi import DecodeMemory, Mimi
from torch_ref.cuda.dia2.slots import make_slots
from torch_ref.dia2.dia2 import Dia2
from torch_ref.dia2.guard import fault
from torch_ref.host import Host
from tts_core.codecs.policy import CodecPolicy
from tts_core.config import Configs
from tts_core.dia2 import slots
from tts_core.errors import GenerationError
from tts_core.nn.beside import Pending, Then


class Dia2Engine:
    """A Dia2 and its codec. tokenizer: the text of its file."""

    def __init__(self, network: Dia2, codec: Mimi, tokenizer: str):
        self.network, self.codec, self.tokenizer = network, codec, tokenizer
        self.configs: Configs = {"dia2": network.config, "mimi": codec.config}
        self.host = Host(network.transformer.text_embed.embedding)

    @property
    def policy(self) -> CodecPolicy:
        """The codec's windows."""
        return self.codec.policy

    def slots(self, texts: int, rows: int, *, guided: bool) -> slots.Slots:
        """Open a running batch for texts that read at most `rows` steps. guided: some may be."""
        return make_slots(self.network, texts=texts, rows=rows, guided=guided)

    def fault(self, tokens: np.ndarray, text: tuple[int, int]) -> GenerationError:
        """Build the error for logits that are not all finite; arguments as in guard.py."""
        return fault(self.network, self.host.to_device(tokens), text)

    def encode(self, samples: np.ndarray) -> np.ndarray:
        """Encode samples. (L,) float32 → codes (Q, P) int32."""
        return self.host.to_host(self.codec.encode(samples[None], self.network.config.n_streams))[0]

    def decode(self, codes: np.ndarray, memory: DecodeMemory | None) -> tuple[np.ndarray, DecodeMemory]:
        """Decode the next frames of a stream. (Q, F) int32 → samples (L,) float32, and the next memory."""
        samples, memory = self.launch(codes, memory)
        return samples.take(), memory

    def launch(
        self, codes: np.ndarray, memory: DecodeMemory | None
    ) -> tuple[Pending[np.ndarray], DecodeMemory]:
        """Begin the same, beside the steps where the host `overlaps`; the memory is for the next launch."""
        after: list[DecodeMemory] = []

        def work() -> list[Tensor]:
            samples, kept = self.codec.decode_piece(self.host.to_device(codes[None]), memory)
            after.append(kept)
            return [samples]

        launched = self.host.launch(work)
        return Then(launched, lambda made: made[0][0].astype(np.float32)), after[0]
