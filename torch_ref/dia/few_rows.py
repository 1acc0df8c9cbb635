"""Dia's decoder for a single grid row of a few texts on a CPU, with fewer and faster operations.

The numbers are those of `Dia.next_logits` up to rounding; tests/parity/dia/test_few_rows.py compares them.
A step of a small network takes as long as its calls, and as reading its weights. Products that read the same
rows are one; weights that float16 holds are packed in it (torch_ref.layers.half_weights), others are computed
as weight · rowsᵀ: torch reads them twice as fast so (2 rows, 17 MB: 1.5 ms instead of 3.9). Attention of one
row is two products and a softmax. A small network runs in one thread: to start and join others takes longer
than they save, many times so on busy cores.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, cast
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_ref.dia.dia import Cache, DecoderLayer, Dia, Source
from torch_ref.layers import half_weights
from torch_ref.layers.cache import KeyValueCache
from torch_ref.layers.half_weights import Product
from torch_ref.layers.rope import Rotation

MOST_ROWS = 16  # the largest number that was measured
SMALL = 64 * 2**20  # bytes of weights that one core reads as fast as two


class Layer(NamedTuple):
    """Products and weights of norms. qkv: queries, keys and values; asking: queries of cross-attention."""

    own_norm: Tensor
    qkv: Product
    own_out: Product
    cross_norm: Tensor
    asking: Product
    cross_out: Product
    mlp_norm: Tensor
    gate_up: Product
    down: Product


class FewRows:
    """The decoder of a network in float32 on a CPU; of a small one with a packed copy of its weights."""

    def __init__(self, network: Dia):
        self.decoder, config = network.model.decoder, network.config.decoder_config
        self.weights = _weights(network)
        self.small = sum(weight.nbytes for weight in self.weights) <= SMALL
        self.versions = _versions(self.weights)
        self.kv_heads, self.head_dim = config.num_key_value_heads, config.head_dim
        self.eps = torch.tensor(config.norm_eps)
        self.layers = [self._layer(layer) for layer in cast(list[DecoderLayer], self.decoder.layers)]
        self.norm, self.head = self.decoder.norm.weight, self._product(network.logits_dense)

    def current(self, network: Dia) -> bool:
        """Return False once the network's weights were replaced or changed."""
        now = _weights(network)
        same = all(one is other for one, other in zip(self.weights, now, strict=True))
        return same and self.versions == _versions(now)

    def fits(self, tokens: Tensor, cache: Sequence[Cache]) -> bool:
        """Return True for one row of a few texts."""
        rows, length, _ = tokens.shape
        return length == 1 and rows <= MOST_ROWS and isinstance(cache[0], KeyValueCache)

    def next_logits(self, tokens: Tensor, cache: Sequence[Cache], source: Source) -> Tensor:
        """Compute logits for the row after `tokens`. (R, 1, C) → (R, C, V) float32."""
        decoder, start = self.decoder, cache[0].length
        rotation = _whole(decoder.rotary(start, 1))
        cross_rotation = _whole(decoder.cross_rotary(start, 1)) if decoder.cross_rope else None
        x = decoder.embeddings(tokens)[:, 0]
        texts = source.keys[0].shape[0]
        conditional, rest = x[:texts], x[texts:]
        for index, (layer, own) in enumerate(zip(self.layers, cache, strict=True)):
            heads = layer.qkv(self._normed(x, layer.own_norm)).view(len(x), -1, 1, self.head_dim)
            turned = _rotate(heads[:, : -self.kv_heads], rotation)
            keys, values = own.extend(turned[:, -self.kv_heads :], heads[:, -self.kv_heads :])
            x.add_(layer.own_out(_attend(turned[:, : -self.kv_heads], keys, values, None)))

            keys, values = source.keys[index], source.values[index]
            asking = layer.asking(self._normed(conditional, layer.cross_norm))
            asking = asking.view(texts, -1, 1, keys.shape[-1])
            asking = asking if cross_rotation is None else _rotate(asking, cross_rotation)
            conditional.add_(layer.cross_out(_attend(asking, keys, values, source.mask)))
            if source.unconditional is not None:
                rest.add_(source.unconditional[index][0])

            gate, up = layer.gate_up(self._normed(x, layer.mlp_norm)).chunk(2, dim=-1)
            x.add_(layer.down(F.silu(gate) * up))
        return self.head(self._normed(x, self.norm)).view(*tokens.shape[::2], -1)

    def _layer(self, layer: DecoderLayer) -> Layer:
        own, cross, mlp = layer.self_attention, layer.cross_attention, layer.mlp
        return Layer(
            layer.pre_sa_norm.weight,
            self._product(own.q_proj, own.k_proj, own.v_proj),
            self._product(own.o_proj),
            layer.pre_ca_norm.weight,
            self._product(cross.q_proj),
            self._product(cross.o_proj),
            layer.pre_mlp_norm.weight,
            self._product(mlp.gate_up_proj),
            self._product(mlp.down_proj),
        )

    def _product(self, *layers: nn.Linear) -> Product:
        weights = [layer.weight for layer in layers]
        if self.small and half_weights.supported() and half_weights.exact(weights):
            return half_weights.packed(torch.cat(weights))
        return lambda x: torch.cat([F.linear(weight, x) for weight in weights]).t().contiguous()

    def _normed(self, x: Tensor, weight: Tensor) -> Tensor:
        """RMS norm in four operations, of which torch's has ten on a CPU. (R, D) → same."""
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        scale = torch.addcmul(self.eps, length, length, value=1 / x.shape[-1]).rsqrt_()
        return (x * scale).mul_(weight)


def few_rows(network: Dia) -> FewRows | None:
    """Return the form of a network in float32 on a CPU, None of others. It is built once, and again after a
    change of weights.
    """
    weight = network.logits_dense.weight
    if weight.device.type != "cpu" or weight.dtype != torch.float32:
        return None
    if network not in _BUILT or not _BUILT[network].current(network):
        _BUILT[network] = FewRows(network)
    return _BUILT[network]


_BUILT: WeakKeyDictionary[Dia, FewRows] = WeakKeyDictionary()


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch's operations run in this thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _weights(network: Dia) -> list[Tensor]:
    return [*network.model.decoder.parameters(), network.logits_dense.weight]


def _versions(weights: Sequence[Tensor]) -> list[int]:
    return [0 if weight.is_inference() else weight._version for weight in weights]


def _whole(rotation: Rotation) -> Rotation:
    """Join both halves' factors: x · cos + (x with its halves exchanged) · sin is rotate(x). (1, E) each."""
    cos, sin = rotation
    return torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)


def _rotate(x: Tensor, rotation: Rotation) -> Tensor:
    cos, sin = rotation
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)


def _attend(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Attend with one row a head, unscaled. (B, H, 1, E), (B, K, S, E) twice → (B, H·E)."""
    batch, groups, length, width = keys.shape
    scores = torch.bmm(
        queries.reshape(batch * groups, -1, width), keys.flatten(0, 1).transpose(1, 2)
    )  # (B·K, H/K, S)
    if mask is not None:
        hidden = ~mask.expand(batch, groups, 1, length).flatten(0, 1)
        scores = scores.masked_fill(hidden, -torch.inf)
    return torch.bmm(scores.softmax(dim=-1), values.flatten(0, 1)).reshape(batch, -1)
