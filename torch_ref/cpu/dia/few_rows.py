"""Dia's decoder for the next row of each text on a CPU, with fewer and faster operations.

The numbers are those of `Dia.next_logits` up to rounding; tests/torch_ref/cpu/dia/test_few_rows.py compares
them. A text's numbers do not depend on the other texts: products run in whole blocks of rows, and where texts
are unequally long, each attends by itself to its own keys, without padding.
A step of a small network takes as long as its calls, and as reading its weights. Products that read the same
rows are one (torch_ref.cpu.row_products). Attention of one row is two products and a softmax. A small
network runs in one thread: to start and join others takes longer than they save, many times so on busy cores.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, cast
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_ref.cpu.half_weights import Product
from torch_ref.cpu.row_products import RowProducts
from torch_ref.dia.dia import DecoderLayer, Dia
from torch_ref.layers.rope import Rotation
from tts_core.nn.row_calls import Runs, alike

SMALL = 64 * 2**20  # bytes of weights that one core reads as fast as two
Pair = tuple[Tensor, Tensor]  # keys and values


class SourceRuns(NamedTuple):
    """Keys and values of texts, of each layer and run, from `near`."""

    runs: Runs
    layers: list[list[Pair]]


class FewRowsLayer(NamedTuple):
    """Products and weights of norms. qkv: queries, keys and values; queries: queries of cross-attention."""

    own_norm: Tensor
    qkv: Product
    own_out: Product
    cross_norm: Tensor
    queries: Product
    cross_out: Product
    mlp_norm: Tensor
    gate_up: Product
    down: Product


class DiaFewRows:
    """The decoder of a network in float32 on a CPU; of a small one with a packed copy of its weights."""

    def __init__(self, network: Dia):
        self.decoder, config = network.model.decoder, network.config.decoder_config
        self.weights = _weights(network)
        self.small = sum(weight.nbytes for weight in self.weights) <= SMALL
        self.versions = _versions(self.weights)
        self.kv_heads, self.head_dim = config.num_key_value_heads, config.head_dim
        self.cross_head_dim = config.cross_head_dim
        self.widths = (
            config.num_attention_heads * config.head_dim,
            config.cross_num_attention_heads * config.cross_head_dim,
        )
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
        same = all(weight is other for weight, other in zip(self.weights, now, strict=True))
        return same and self.versions == _versions(now)

    def next_logits(
        self,
        tokens: Tensor,
        own: Sequence[Pair],
        positions: Sequence[int],
        source: SourceRuns,
        constants: Sequence[Tensor] | None,
    ) -> Tensor:
        """Compute logits for the row after `tokens`. (R, C) → (R, C·V) float32.

        R: rows of B texts, then with guidance their unconditional ones.
        own: keys and values of each layer, (R, K, rows, E), to which the new ones are written.
        positions: of `tokens` in each text.
        constants: as Source's `unconditional`.
        """
        rows, texts = len(tokens), len(positions)
        at = torch.tensor(positions)
        rotation = _whole(self.decoder.rotary(at[:, None, None], 1), rows // texts)
        cross_rotation = None
        if self.decoder.cross_rope:
            cross_rotation = _whole(self.decoder.cross_rotary(at[:, None, None], 1), 1)
        whole, padded_texts = self.calls.padded(rows), self.calls.padded(texts)
        x = F.pad(self.decoder.embeddings(tokens[:, None])[:, 0], (0, 0, 0, whole - rows))
        conditional, rest, query_rows = x[:texts], x[texts:rows], x[:padded_texts]
        attended, told = x.new_zeros(whole, self.widths[0]), x.new_zeros(padded_texts, self.widths[1])
        seen = alike([position + 1 for position in positions])
        first_value = -self.kv_heads
        for index, (layer, (keys, values)) in enumerate(zip(self.layers, own, strict=True)):
            heads = layer.qkv(_normed(x, layer.own_norm, self.eps)).narrow(0, 0, rows)
            heads = heads.view(rows, -1, 1, self.head_dim)
            rotated = _rotate(heads[:, :first_value], rotation)
            _write(keys, rotated[:, first_value:], positions, at)
            _write(values, heads[:, first_value:], positions, at)
            _attend(rotated[:, :first_value], contiguous(keys, values, seen), seen, attended)
            x.add_(layer.own_out(attended))

            queries = layer.queries(_normed(query_rows, layer.cross_norm, self.eps)).narrow(0, 0, texts)
            queries = queries.view(texts, -1, 1, self.cross_head_dim)
            queries = queries if cross_rotation is None else _rotate(queries, cross_rotation)
            _attend(queries, source.layers[index], source.runs, told)
            conditional.add_(layer.cross_out(told).narrow(0, 0, texts))
            if constants is not None:
                rest.add_(constants[index][0])

            gate, up = layer.gate_up(_normed(x, layer.mlp_norm, self.eps)).chunk(2, dim=-1)
            x.add_(layer.down(F.silu(gate) * up))
        return self.head(_normed(x, self.norm, self.eps))[:rows]


def few_rows(network: Dia) -> DiaFewRows | None:
    """Return the form of a network in float32 on a CPU, None of others. It is built once, and again after a
    change of weights.
    """
    weight = network.logits_dense.weight
    if weight.device.type != "cpu" or weight.dtype != torch.float32:
        return None
    if network not in _BUILT or not _BUILT[network].current(network):
        _BUILT[network] = DiaFewRows(network)
    return _BUILT[network]


_BUILT: WeakKeyDictionary[Dia, DiaFewRows] = WeakKeyDictionary()


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
    """List the weights of the products of a layer, in the order of FewRowsLayer."""
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


def _layer(layer: DecoderLayer, products: RowProducts) -> FewRowsLayer:
    qkv, own_out, queries, cross_out, gate_up, down = map(products, _products(layer))
    own_norm, cross_norm, mlp_norm = layer.pre_sa_norm, layer.pre_ca_norm, layer.pre_mlp_norm
    return FewRowsLayer(
        own_norm.weight, qkv, own_out, cross_norm.weight, queries, cross_out, mlp_norm.weight, gate_up, down
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


def _write(held: Tensor, new: Tensor, positions: Sequence[int], at: Tensor) -> None:
    """Put each text's new keys or values at its place. held: (R, K, rows, E).  new: (R, K, 1, E)."""
    if min(positions) == max(positions):
        held.narrow(2, positions[0], 1).copy_(new)
    else:
        held[torch.arange(len(held)), :, at.repeat(len(held) // len(at))] = new[:, :, 0]


def contiguous(keys: Tensor, values: Tensor, runs: Runs) -> list[Pair]:
    """Return each run's keys, turned, and values, text by text. (R, K, S, E) twice → (N, E, S), (N, S, E)."""
    if len(runs) == 1:
        count = runs[0][2]
        shown = keys.narrow(2, 0, count).flatten(0, 1).transpose(1, 2)
        return [(shown, values.narrow(2, 0, count).flatten(0, 1))]
    split = -1, runs[-1][1]  # conditional and unconditional rows of the texts
    keys, values = (key.unflatten(0, split).transpose(0, 1) for key in (keys, values))
    found = list[Pair]()
    for first, last, count in runs:
        shown, held = (
            key.narrow(0, first, last - first).narrow(3, 0, count).flatten(0, 2) for key in (keys, values)
        )
        found.append((shown.transpose(1, 2), held))
    return found


def _attend(queries: Tensor, pairs: Sequence[Pair], runs: Runs, out: Tensor) -> None:
    """Attend with one row a head, unscaled, each text to as many keys as it has.

    queries: (R, H, 1, E).
    pairs: from `near`.
    out: (rows, H·E), of which the first R are written.
    """
    rows, width = len(queries), queries.shape[-1]
    if len(runs) == 1:
        [(keys, values)] = pairs
        target = out.narrow(0, 0, rows).view(len(keys), -1, width)
        scores = torch.bmm(queries.reshape(target.shape), keys)
        torch.bmm(scores.softmax(dim=-1), values, out=target)
        return
    texts = runs[-1][1]
    by_text = queries.reshape(-1, texts, queries.shape[1], width).transpose(0, 1).contiguous()
    made = torch.empty_like(by_text)  # (B, copies, H, E)
    for (first, last, _), (keys, values) in zip(runs, pairs, strict=True):
        query = by_text.narrow(0, first, last - first).view(len(keys), -1, width)
        target = made.narrow(0, first, last - first).view(len(keys), -1, width)
        torch.bmm(torch.bmm(query, keys).softmax(dim=-1), values, out=target)
    out.narrow(0, 0, rows).view(-1, texts, *made.shape[2:]).copy_(made.transpose(0, 1))
