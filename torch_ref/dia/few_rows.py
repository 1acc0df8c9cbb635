"""Dia's decoder for the next row of each text on a CPU, with fewer and faster operations.

The numbers are those of `Dia.next_logits` up to rounding; tests/parity/dia/test_few_rows.py compares them. A
text's numbers do not depend on the other texts: products run in whole blocks of rows, and where texts are
unequally long, each attends by itself to its own keys, without padding.
A step of a small network takes as long as its calls, and as reading its weights. Products that read the same
rows are one (torch_ref.layers.row_products). Attention of one row is two products and a softmax. A small
network runs in one thread: to start and join others takes longer than they save, many times so on busy cores.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import NamedTuple, cast
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_ref.dia.dia import DecoderLayer, Dia
from torch_ref.layers.half_weights import Product
from torch_ref.layers.rope import Rotation
from torch_ref.layers.row_products import RowProducts

SMALL = 64 * 2**20  # bytes of weights that one core reads as fast as two
Pair = tuple[Tensor, Tensor]  # keys and values


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
        layers = cast(list[DecoderLayer], self.decoder.layers)
        head = [network.logits_dense.weight]
        every = [product for layer in layers for product in _products(layer)]
        products = RowProducts([*every, head], pack=self.small)
        self.calls = products.calls
        self.layers = [_layer(layer, products) for layer in layers]
        self.norm, self.head = self.decoder.norm.weight, products(head)

    def current(self, network: Dia) -> bool:
        """Return False once the network's weights were replaced or changed."""
        now = _weights(network)
        same = all(one is other for one, other in zip(self.weights, now, strict=True))
        return same and self.versions == _versions(now)

    def next_logits(
        self,
        tokens: Tensor,
        own: Sequence[Pair],
        places: Sequence[int],
        source: Sequence[Pair],
        lengths: Sequence[int],
        constants: Sequence[Tensor] | None,
    ) -> Tensor:
        """Compute logits for the row after `tokens`. (R, C) → (R, C·V) float32.

        R: rows of B texts, then with guidance their unconditional ones.  own: keys and values of each
        layer, (R, K, rows, E), to which the new ones are written.  places: of `tokens` in each text.
        source: those of the texts, (B, K, S, E), `lengths` of which count.  constants: as Source's
        `unconditional`.
        """
        rows, texts = len(tokens), len(places)
        at = torch.tensor(places)
        rotation = _whole(self.decoder.rotary(at[:, None, None], 1), rows // texts)
        cross_rotation = None
        if self.decoder.cross_rope:
            cross_rotation = _whole(self.decoder.cross_rotary(at[:, None, None], 1), 1)
        whole, asked = self.calls.padded(rows), self.calls.padded(texts)
        x = F.pad(self.decoder.embeddings(tokens[:, None])[:, 0], (0, 0, 0, whole - rows))
        seen, heard = _alike([place + 1 for place in places]), _alike(lengths)
        for index, (layer, (keys, values)) in enumerate(zip(self.layers, own, strict=True)):
            heads = layer.qkv(_normed(x, layer.own_norm, self.eps))[:rows].view(rows, -1, 1, self.head_dim)
            turned = _rotate(heads[:, : -self.kv_heads], rotation)
            _write(keys, turned[:, -self.kv_heads :], places, at)
            _write(values, heads[:, -self.kv_heads :], places, at)
            x.add_(layer.own_out(_attend(turned[:, : -self.kv_heads], keys, values, seen, whole)))

            keys, values = source[index]
            asking = layer.asking(_normed(x[:asked], layer.cross_norm, self.eps))[:texts]
            asking = asking.view(texts, -1, 1, keys.shape[-1])
            asking = asking if cross_rotation is None else _rotate(asking, cross_rotation)
            attended = layer.cross_out(_attend(asking, keys, values, heard, asked))
            x[:texts].add_(attended[:texts])
            if constants is not None:
                x[texts:rows].add_(constants[index][0])

            gate, up = layer.gate_up(_normed(x, layer.mlp_norm, self.eps)).chunk(2, dim=-1)
            x.add_(layer.down(F.silu(gate) * up))
        return self.head(_normed(x, self.norm, self.eps))[:rows]


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


def _products(layer: DecoderLayer) -> list[list[Tensor]]:
    """List the weights of the products of a layer, in the order of Layer."""
    own, cross, mlp = layer.self_attention, layer.cross_attention, layer.mlp
    parallel: list[list[nn.Linear]] = [
        [own.q_proj, own.k_proj, own.v_proj],
        [own.o_proj],
        [cross.q_proj],
        [cross.o_proj],
        [mlp.gate_up_proj],
        [mlp.down_proj],
    ]
    return [[linear.weight for linear in layers] for layers in parallel]


def _layer(layer: DecoderLayer, products: RowProducts) -> Layer:
    qkv, own_out, asking, cross_out, gate_up, down = map(products, _products(layer))
    own_norm, cross_norm, mlp_norm = layer.pre_sa_norm, layer.pre_ca_norm, layer.pre_mlp_norm
    return Layer(
        own_norm.weight, qkv, own_out, cross_norm.weight, asking, cross_out, mlp_norm.weight, gate_up, down
    )


def _weights(network: Dia) -> list[Tensor]:
    return [*network.model.decoder.parameters(), network.logits_dense.weight]


def _versions(weights: Sequence[Tensor]) -> list[int]:
    return [0 if weight.is_inference() else weight._version for weight in weights]


def _normed(x: Tensor, weight: Tensor, eps: Tensor) -> Tensor:
    """RMS norm in four operations, of which torch's has ten on a CPU. (R, D) → same."""
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    scale = torch.addcmul(eps, length, length, value=1 / x.shape[-1]).rsqrt_()
    return (x * scale).mul_(weight)


def _whole(rotation: Rotation, copies: int) -> Rotation:
    """Join both halves' factors: x · cos + (x with its halves exchanged) · sin is rotate(x).

    (B, 1, 1, E/2) each → (copies · B, 1, 1, E) each.
    """
    cos, sin = rotation
    return torch.cat((cos, cos), dim=-1).repeat(copies, 1, 1, 1), torch.cat((-sin, sin), dim=-1).repeat(
        copies, 1, 1, 1
    )


def _rotate(x: Tensor, rotation: Rotation) -> Tensor:
    cos, sin = rotation
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)


def _write(held: Tensor, new: Tensor, places: Sequence[int], at: Tensor) -> None:
    """Put each text's new keys or values at its place. held: (R, K, rows, E).  new: (R, K, 1, E)."""
    if min(places) == max(places):
        held[:, :, places[0]] = new[:, :, 0]
    else:
        held[torch.arange(len(held)), :, at.repeat(len(held) // len(at))] = new[:, :, 0]


def _alike(counts: Sequence[int]) -> list[tuple[int, int, int]]:
    """List runs of texts with equal counts: the first text, the one after the last, and the count."""
    runs, first = list[tuple[int, int, int]](), 0
    for count, run in groupby(counts):
        last = first + len(list(run))
        runs.append((first, last, count))
        first = last
    return runs


def _attend(
    queries: Tensor, keys: Tensor, values: Tensor, runs: Sequence[tuple[int, int, int]], rows: int
) -> Tensor:
    """Attend with one row a head, unscaled, each text to as many keys as it has.

    (R, H, 1, E), (R, K, S, E) twice → (rows, H·E), with zeros after R.
    """
    texts, width = runs[-1][1], queries.shape[-1]
    groups, kv_heads = len(queries) // texts, keys.shape[1]
    out = queries.new_zeros(rows, queries.shape[1] * width)
    queries = queries.reshape(groups, texts, kv_heads, -1, width)
    keys, values = (one.unflatten(0, (groups, texts)) for one in (keys, values))
    placed = out[: groups * texts].view(groups, texts, kv_heads, -1, width)
    for first, last, count in runs:
        asked = queries[:, first:last].flatten(0, 2)
        scores = asked @ keys[:, first:last, :, :count].flatten(0, 2).transpose(1, 2)  # (R·K, H/K, S)
        attended = scores.softmax(dim=-1) @ values[:, first:last, :, :count].flatten(0, 2)
        placed[:, first:last] = attended.view(groups, last - first, kv_heads, -1, width)
    return out
