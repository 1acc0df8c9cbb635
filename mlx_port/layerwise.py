"""One layer of a network at a time: built, filled and run alone, so that the whole is never in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx.utils import tree_map

from mlx_port.codecs.dac import Dac
from mlx_port.dia.dia import Dia
from mlx_port.layers.cache import KeyValueCache
from mlx_port.loading import DTYPES, cast_floats, quantize_linears
from mlx_port.verify.stored import Stored
from tts_core.dac import DacConfig
from tts_core.dia import DiaConfig
from tts_core.stages import Stage, State, passes

Tensors = Mapping[str, mx.array]
TIME_LAST = ("hidden", "latents", "encodings")  # (B, C, T) in a state, (B, T, C) inside


class DiaLayers:
    """Dia without its weights; a stage has them while it runs.

    dtype: of weights and activations: float32, bfloat16 or float16; norms are float32, codes of quantised
    weights stay as they are stored.
    """

    def __init__(self, config: DiaConfig, weights: Stored, dtype: str):
        self.network = Dia(config)  # lazy: what is not filled is never made
        self.network.eval()
        if weights.quantization:
            quantize_linears(self.network, dict(weights.quantization), "dia")
        self.weights, self.dtype = weights, DTYPES[dtype]

    def run(self, stage: Stage, states: Sequence[State]) -> list[State]:
        """What a stage makes of each state (tts_core.stages): float32."""
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
        layer = encoder.layers[index]
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
        layer, layers = decoder.layers[index], decoder.layers
        decoder.layers = [layer]  # the others have no weights to make a source with
        source = decoder.source(x["text"], None, x["nothing"])
        decoder.layers = layers
        cache, pieces = KeyValueCache(), []
        for start, stop in passes(x["rows"].shape[1]):
            rotation = decoder.rotary(start, stop - start)
            cross_rotation = decoder.cross_rotary(start, stop - start) if decoder.cross_rope else None
            pieces.append(layer(x["rows"][:, start:stop], rotation, cross_rotation, cache, source, 0))
        return {"rows": mx.concatenate(pieces, axis=1), "keys": source.keys[0], "values": source.values[0]}

    def decoder_norm(self, x: Tensors, index: int) -> Tensors:
        """The decoder's last norm."""
        return {"rows": self.network.model.decoder.norm(x["rows"])}

    def head(self, x: Tensors, index: int) -> Tensors:
        """Vectors to logits."""
        return {"logits": self.network.head(x["rows"])}


class DacLayers:
    """The codec without its weights; a stage has them while it runs.

    dtype: float32.
    """

    def __init__(self, config: DacConfig, weights: Stored, dtype: str):
        self.network = Dac(config)
        self.network.eval()
        self.weights, self.dtype = weights, DTYPES[dtype]

    def run(self, stage: Stage, states: Sequence[State]) -> list[State]:
        """What a stage makes of each state (tts_core.stages): float32."""
        fill(self.network, stage, self.weights, self.dtype)
        layer = getattr(self, stage.kind)
        made = [to_host(layer(from_host(state, self.dtype), stage.index)) for state in states]
        empty(self.network, stage)
        return made

    def encoder_input(self, x: Tensors, index: int) -> Tensors:
        """The first convolution."""
        return {"hidden": self.network.encoder.conv1(x["samples"][..., None])}

    def encoder_block(self, x: Tensors, index: int) -> Tensors:
        """One block of the encoder."""
        block = self.network.encoder.block[index]
        return {"hidden": block(x["hidden"])}

    def encoder_output(self, x: Tensors, index: int) -> Tensors:
        """The last convolution."""
        encoder = self.network.encoder
        return {"latents": encoder.conv2(encoder.snake1(x["hidden"]))}

    def quantizer(self, x: Tensors, index: int) -> Tensors:
        """One codebook: what it searches by, its codes behind those before, and what it leaves over."""
        quantizer = self.network.quantizer.quantizers[index]
        codes = quantizer.encode(x["latents"])
        return {
            "encodings": quantizer.in_proj(x["latents"]),
            "codes": mx.concatenate([x["codes"], codes[:, None]], axis=1),
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
        block = self.network.decoder.block[index]
        return {"hidden": block(x["hidden"])}

    def decoder_output(self, x: Tensors, index: int) -> Tensors:
        """The last convolution, to samples in [-1, 1]."""
        decoder = self.network.decoder
        return {"audio": mx.tanh(decoder.conv2(decoder.snake1(x["hidden"])))[..., 0]}


def fill(network: nn.Module, stage: Stage, weights: Stored, dtype: mx.Dtype) -> None:
    """Give the stage's modules, and no others, their tensors; names and shapes must fit exactly."""
    stored = weights.read(stage.tensors(weights.names()))
    for module in stage.modules:
        state = [
            (name.removeprefix(f"{module}."), cast_floats(name, value, dtype, "dia"))
            for name, value in stored.items()
            if name.startswith(f"{module}.")
        ]
        _submodule(network, module).load_weights(state, strict=True)


def empty(network: nn.Module, stage: Stage) -> None:
    """Take the stage's tensors away again: zeros that are never made stand in their place."""
    for module in stage.modules:
        owner = _submodule(network, module)
        owner.update(tree_map(lambda value: mx.zeros(value.shape, value.dtype), owner.parameters()))


def from_host(state: State, dtype: mx.Dtype) -> dict[str, mx.array]:
    """Floating arrays in `dtype`, integers as they are."""
    arrays = {name: value.swapaxes(1, 2) if name in TIME_LAST else value for name, value in state.items()}
    return {
        name: mx.array(value.astype(np.float32)).astype(dtype) if value.dtype.kind == "f" else mx.array(value)
        for name, value in arrays.items()
    }


def to_host(made: Tensors) -> State:
    """NumPy arrays, float32 where they are floating. Waits for the device."""
    arrays = {
        name: np.array(value.astype(mx.float32) if mx.issubdtype(value.dtype, mx.floating) else value)
        for name, value in made.items()
    }
    return {name: value.swapaxes(1, 2) if name in TIME_LAST else value for name, value in arrays.items()}


def _submodule(network: nn.Module, path: str) -> nn.Module:
    module: Any = network
    for name in path.split("."):
        module = module[int(name)] if name.isdigit() else module[name]
    return module
