"""Dia's decoder for a single grid row of a few texts on a CPU, with fewer and faster operations.

The numbers are those of `Dia.next_logits` up to rounding; tests/parity/dia/test_few_rows.py compares them.
A step of a small network takes as long as its calls, and as reading its weights. Products are computed as
weight · rowsᵀ: torch reads the weights twice as fast so (2 rows, 17 MB: 1.5 ms instead of 3.9). Attention of
one row is two products and a softmax. A small network runs in one thread: to start and join others takes
longer than they save, many times so on busy cores.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_ref.dia.dia import Cache, CrossAttention, DecoderLayer, Dia, SelfAttention, Source
from torch_ref.layers.cache import KeyValueCache
from torch_ref.layers.norm import RMSNorm
from torch_ref.layers.rope import Rotation

MOST_ROWS = 16  # the largest number that was measured
SMALL = 64 * 2**20  # bytes of weights that one core reads as fast as two


class FewRows:
    """The decoder of a network, which keeps its weights. For rows and caches that `fits` accepts."""

    def __init__(self, network: Dia):
        self.network, self.decoder = network, network.model.decoder
        self.small = sum(weight.nbytes for weight in self.decoder.parameters()) <= SMALL

    def fits(self, tokens: Tensor, cache: Sequence[Cache]) -> bool:
        """Return True for one row of a few texts in float32 on a CPU, after others."""
        weight = self.network.logits_dense.weight
        rows, length, _ = tokens.shape
        plain = weight.device.type == "cpu" and weight.dtype == torch.float32
        return plain and length == 1 and rows <= MOST_ROWS and isinstance(cache[0], KeyValueCache)

    def next_logits(self, tokens: Tensor, cache: Sequence[Cache], source: Source) -> Tensor:
        """Compute logits for the row after `tokens`. (R, 1, C) → (R, C, V) float32."""
        with one_thread() if self.small else nullcontext():
            return self._compute(tokens, cache, source)

    def _compute(self, tokens: Tensor, cache: Sequence[Cache], source: Source) -> Tensor:
        decoder, start = self.decoder, cache[0].length
        rotation = _whole(decoder.rotary(start, 1))
        cross_rotation = _whole(decoder.cross_rotary(start, 1)) if decoder.cross_rope else None
        x = decoder.embeddings(tokens)[:, 0]
        for index, (layer, rows) in enumerate(zip(decoder.layers, cache, strict=True)):
            assert isinstance(layer, DecoderLayer)
            x = x + _self_attention(layer.self_attention, _norm(layer.pre_sa_norm, x), rotation, rows)
            texts = source.keys[index].shape[0]
            asked = _norm(layer.pre_ca_norm, x[:texts])
            x[:texts] += _cross_attention(layer.cross_attention, asked, source, index, cross_rotation)
            if source.unconditional is not None:
                x[texts:] += source.unconditional[index][0]
            gate, up = _product(layer.mlp.gate_up_proj, _norm(layer.pre_mlp_norm, x)).chunk(2, dim=-1)
            x += _product(layer.mlp.down_proj, F.silu(gate) * up)
        return _product(self.network.logits_dense, _norm(decoder.norm, x)).view(*tokens.shape[::2], -1)


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch's operations run in this thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _product(linear: torch.nn.Linear, x: Tensor) -> Tensor:
    """Compute linear(x) as weight · xᵀ. (R, D) → (R, D')."""
    return F.linear(linear.weight, x).t().contiguous()


def _norm(norm: RMSNorm, x: Tensor) -> Tensor:
    return F.rms_norm(x, norm.weight.shape, norm.weight, norm.eps)


def _whole(rotation: Rotation) -> Rotation:
    """Join both halves' factors: x · cos + (x with its halves exchanged) · sin is rotate(x). (1, E) each."""
    cos, sin = rotation
    return torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)


def _rotate(x: Tensor, rotation: Rotation) -> Tensor:
    cos, sin = rotation
    return x * cos + x.roll(x.shape[-1] // 2, -1) * sin


def _self_attention(layer: SelfAttention, x: Tensor, rotation: Rotation, cache: Cache) -> Tensor:
    """(R, D) → same."""
    heads = x.shape[0], -1, 1, layer.head_dim
    keys = _rotate(_product(layer.k_proj, x).view(heads), rotation)
    keys, values = cache.extend(keys, _product(layer.v_proj, x).view(heads))
    queries = _rotate(_product(layer.q_proj, x).view(heads), rotation)
    return _product(layer.o_proj, _attend(queries, keys, values, None))


def _cross_attention(
    layer: CrossAttention, x: Tensor, source: Source, index: int, rotation: Rotation | None
) -> Tensor:
    """(B, D) → same."""
    queries = _product(layer.q_proj, x).view(x.shape[0], -1, 1, layer.head_dim)
    queries = queries if rotation is None else _rotate(queries, rotation)
    return _product(layer.o_proj, _attend(queries, source.keys[index], source.values[index], source.mask))


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
