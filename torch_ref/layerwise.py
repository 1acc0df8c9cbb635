"""One layer of a network at a time: built, filled and run alone, so that the whole is never in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from converters.published import Part
from torch_ref.codecs.dac import Dac, DecoderBlock, EncoderBlock, VectorQuantizer
from torch_ref.device import DTYPES
from torch_ref.dia.dia import DecoderLayer, Dia, EncoderLayer
from torch_ref.layers.cache import KeyValueCache
from torch_ref.layers.norm import at_least_float32
from tts_core.dac import DacConfig
from tts_core.dia import DiaConfig
from tts_core.dia_shapes import is_norm
from tts_core.stages import Stage, State, passes

Tensors = Mapping[str, Tensor]


class DiaLayers:
    """Dia without its weights; a stage has them while it runs.

    dtype: of weights and activations: float32, float64, bfloat16 or float16; norms are at least float32.
    """

    def __init__(self, config: DiaConfig, weights: Part, dtype: str):
        with torch.device("meta"):
            self.network = Dia(config).eval()
        self.weights, self.dtype = weights, DTYPES[dtype]

    @torch.inference_mode()
    def run(self, stage: Stage, states: Sequence[State]) -> list[State]:
        """What a stage makes of each state (tts_core.stages): float32, or float64 in float64."""
        fill(self.network, stage, self.weights, self.dtype)
        layer = getattr(self, stage.kind)
        made = [to_host(layer(from_host(state, self.dtype), stage.index)) for state in states]
        empty(self.network, stage)
        return made

    def text_embedding(self, x: Tensors, index: int) -> Tensors:
        """Ids to vectors; `zero` is the one zero id that stands for no text."""
        embedding = self.network.model.encoder.embedding
        return {"text": embedding(x["ids"]), "nothing": embedding(x["zero"])}

    def encoder_layer(self, x: Tensors, index: int) -> Tensors:
        """Text and no text, each alone."""
        encoder = self.network.model.encoder
        layer = cast(EncoderLayer, encoder.layers[index])
        return {name: layer(x[name], encoder.rotary(0, x[name].shape[1])) for name in ("text", "nothing")}

    def encoder_norm(self, x: Tensors, index: int) -> Tensors:
        """The encoder's last norm."""
        norm = self.network.model.encoder.norm
        return {"text": norm(x["text"]), "nothing": norm(x["nothing"])}

    def row_embedding(self, x: Tensors, index: int) -> Tensors:
        """Grid rows to vectors."""
        return {"rows": self.network.model.decoder.embeddings(x["tokens"])}

    def decoder_layer(self, x: Tensors, index: int) -> Tensors:
        """All rows, in several calls with a cache; and the keys and values of cross-attention."""
        decoder = self.network.model.decoder
        layer, layers = cast(DecoderLayer, decoder.layers[index]), decoder.layers
        decoder.layers = nn.ModuleList([layer])  # the others have no weights to make a source with
        source = decoder.source(x["text"], None, x["nothing"])
        decoder.layers = layers
        cache, pieces = KeyValueCache(), []
        for start, stop in passes(x["rows"].shape[1]):
            rotation = decoder.rotary(start, stop - start)
            cross_rotation = decoder.cross_rotary(start, stop - start) if decoder.cross_rope else None
            pieces.append(layer(x["rows"][:, start:stop], rotation, cross_rotation, cache, source, 0))
        return {"rows": torch.cat(pieces, dim=1), "keys": source.keys[0], "values": source.values[0]}

    def decoder_norm(self, x: Tensors, index: int) -> Tensors:
        """The decoder's last norm."""
        return {"rows": self.network.model.decoder.norm(x["rows"])}

    def head(self, x: Tensors, index: int) -> Tensors:
        """Vectors to logits."""
        return {"logits": self.network.head(x["rows"])}


class DacLayers:
    """The codec without its weights; a stage has them while it runs.

    dtype: float32 or float64.
    """

    def __init__(self, config: DacConfig, weights: Part, dtype: str):
        with torch.device("meta"):
            self.network = Dac(config).eval()
        self.weights, self.dtype = weights, DTYPES[dtype]

    @torch.inference_mode()
    def run(self, stage: Stage, states: Sequence[State]) -> list[State]:
        """What a stage makes of each state (tts_core.stages): float32, or float64 in float64."""
        fill(self.network, stage, self.weights, self.dtype)
        layer = getattr(self, stage.kind)
        made = [to_host(layer(from_host(state, self.dtype), stage.index)) for state in states]
        empty(self.network, stage)
        return made

    def encoder_input(self, x: Tensors, index: int) -> Tensors:
        """The first convolution."""
        return {"hidden": self.network.encoder.conv1(x["samples"][:, None])}

    def encoder_block(self, x: Tensors, index: int) -> Tensors:
        """One block of the encoder."""
        block = cast(EncoderBlock, self.network.encoder.block[index])
        return {"hidden": block(x["hidden"])}

    def encoder_output(self, x: Tensors, index: int) -> Tensors:
        """The last convolution."""
        encoder = self.network.encoder
        return {"latents": encoder.conv2(encoder.snake1(x["hidden"]))}

    def quantizer(self, x: Tensors, index: int) -> Tensors:
        """One codebook: what it searches by, its codes behind those before, and what it leaves over."""
        quantizer = cast(VectorQuantizer, self.network.quantizer.quantizers[index])
        codes = quantizer.encode(x["latents"])
        return {
            "encodings": quantizer.in_proj(x["latents"]),
            "codes": torch.cat((x["codes"], codes[:, None]), dim=1),
            "latents": x["latents"] - quantizer.decode(codes),
        }

    def dequantizer(self, x: Tensors, index: int) -> Tensors:
        """Codes of all codebooks to latents."""
        return {"hidden": self.network.quantizer.decode(x["codes"])}

    def decoder_input(self, x: Tensors, index: int) -> Tensors:
        """The first convolution."""
        return {"hidden": self.network.decoder.conv1(x["hidden"])}

    def decoder_block(self, x: Tensors, index: int) -> Tensors:
        """One block of the decoder."""
        block = cast(DecoderBlock, self.network.decoder.block[index])
        return {"hidden": block(x["hidden"])}

    def decoder_output(self, x: Tensors, index: int) -> Tensors:
        """The last convolution, to samples in [-1, 1]."""
        decoder = self.network.decoder
        return {"audio": torch.tanh(decoder.conv2(decoder.snake1(x["hidden"])))[:, 0]}


def fill(network: nn.Module, stage: Stage, weights: Part, dtype: torch.dtype) -> None:
    """Give the stage's modules, and no others, their tensors; names and shapes must fit exactly."""
    wide = torch.promote_types(dtype, torch.float32)
    for module in stage.modules:
        names = [name for name in stage.tensors(weights.names()) if name.startswith(f"{module}.")]
        state = {
            name.removeprefix(f"{module}."): _tensor(weights.read(name), wide if is_norm(name) else dtype)
            for name in names
        }
        network.get_submodule(module).load_state_dict(state, strict=True, assign=True)


def empty(network: nn.Module, stage: Stage) -> None:
    """Take the stage's tensors away again."""
    for module in stage.modules:
        network.get_submodule(module).to_empty(device="meta")


def from_host(state: State, dtype: torch.dtype) -> dict[str, Tensor]:
    """Floating arrays in `dtype`, integers as they are."""
    return {name: _tensor(value, dtype if value.dtype.kind == "f" else None) for name, value in state.items()}


def to_host(made: Tensors) -> State:
    """NumPy arrays, of at least float32 where they are floating."""
    return {
        name: (at_least_float32(value) if value.is_floating_point() else value).contiguous().numpy()
        for name, value in made.items()
    }


def _tensor(array: np.ndarray, dtype: torch.dtype | None) -> Tensor:
    return torch.from_numpy(array if array.flags.writeable else array.copy()).to(dtype)
