"""Pieces of streams that Mimi and Qwen3-TTS's codec decode on CUDA, as graphs.

A piece of a few frames takes the host about 5 ms to launch, and an H200 less to run. Streams have the same
windows, so that pieces of the same lengths after as many frames come again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from torch_ref.codecs.mimi import Mimi, MimiMemory
from torch_ref.codecs.mimi_transformer import TransformerMemory
from torch_ref.codecs.qwen3_codec import Qwen3Codec
from torch_ref.codecs.qwen3_decoder import Qwen3DecoderMemory
from torch_ref.cuda.replayed import ReplayedTensors
from tts_core.codecs.mimi import STEPS
from tts_core.codecs.policy import CAPTURED


class ReplayedPieces:
    """Decodes as the codec's `decode_piece` does."""

    def __init__(self, codec: Mimi | Qwen3Codec):
        self.codec = codec
        if isinstance(codec, Mimi):
            self.transformer, self.steps, self.memory = codec.decoder_transformer, STEPS, MimiMemory
        else:
            self.transformer, self.steps, self.memory = codec.decoder.pre_transformer, 1, Qwen3DecoderMemory
        self._replayed = ReplayedTensors(
            self._run, lambda: codec.precision, lambda shape: shape[0] == 1 and shape[2] <= CAPTURED
        )

    def __call__(self, codes: Tensor, memory: Any) -> tuple[Tensor, Any]:
        """Decode the next frames of a stream. (B, Q, T) → (B, hop T) and the memory for the next piece.

        memory: of the pieces before; None at the start.
        """
        start, count = memory.transformer.length if memory else 0, self.steps * codes.shape[2]
        rotation = self.transformer.rotation(codes.new_empty(1, count), start)
        samples, *tensors = self._replayed(codes, *rotation, *_tensors(memory))
        return samples, self._built(tensors, start + count)

    def _run(self, codes: Tensor, cos: Tensor, sin: Tensor, *kept: Tensor) -> Sequence[Tensor]:
        memory = self._built(kept, 0) if kept else None  # where a piece begins is in its rotation
        samples, memory = self.codec.decode_piece(codes, memory, (cos, sin))
        return samples, *_tensors(memory)

    def _built(self, tensors: Sequence[Tensor], length: int) -> Any:
        first, *layers, last = tensors
        pairs = list(zip(layers[::2], layers[1::2], strict=True))
        return self.memory(first, TransformerMemory(length, pairs), last)


def _tensors(memory: Any) -> list[Tensor]:
    if memory is None:
        return []
    first, transformer, last = memory
    return [first, *(one for pair in transformer.layers for one in pair), last]
