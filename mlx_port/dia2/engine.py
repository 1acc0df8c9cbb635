"""Dia2's engine: both networks, step by step, and the codec."""

from __future__ import annotations

import numpy as np

from mlx_port.codecs.mimi import DecodeMemory, Mimi
from mlx_port.dia2.dia2 import Dia2
from mlx_port.dia2.guard import fault
from mlx_port.dia2.slots import Slots
from mlx_port.host import Host
from mlx_port.steps.dia2.fused import join
from tts_core.codecs.policy import CodecPolicy
from tts_core.config import Configs
from tts_core.errors import GenerationError
from tts_core.nn.beside import Done


class Dia2Engine:
    """A Dia2 and its codec. tokenizer: the text of its file."""

    def __init__(self, network: Dia2, codec: Mimi, tokenizer: str):
        join(network)
        self.network, self.codec, self.tokenizer = network, codec, tokenizer
        self.configs: Configs = {"dia2": network.config, "mimi": codec.config}
        self.host = Host(network.transformer.text_embed.embedding)

    @property
    def policy(self) -> CodecPolicy:
        """The codec's windows."""
        return self.codec.policy

    def slots(self, texts: int, rows: int, *, guided: bool) -> Slots:
        """Open a running batch for texts that read at most `rows` steps. guided: some may be."""
        return Slots(self.network)

    def fault(self, tokens: np.ndarray, text: tuple[int, int]) -> GenerationError:
        """Build the error for logits that are not all finite; arguments as in guard.py."""
        return fault(self.network, self.host.to_device(tokens), text)

    def encode(self, samples: np.ndarray) -> np.ndarray:
        """Encode samples. (L,) float32 → codes (Q, P) int32."""
        return self.host.to_host(self.codec.encode(samples[None], self.network.config.n_streams))[0]

    def decode(self, codes: np.ndarray, memory: DecodeMemory | None) -> tuple[np.ndarray, DecodeMemory]:
        """Decode the next frames of a stream. (Q, F) int32 → samples (L,) float32, and the next memory."""
        samples, memory = self.codec.decode_piece(codes[None], memory)
        return self.host.to_host(samples)[0].astype(np.float32), memory

    def launch(self, codes: np.ndarray, memory: DecodeMemory | None) -> tuple[Done[np.ndarray], DecodeMemory]:
        """Do the same."""
        samples, memory = self.decode(codes, memory)
        return Done(samples), memory
