"""The layers of a transformer for a row of each text, with few launches: joined weights and compiled chains.
Rounded where the layers round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import mlx.core as mx

from mlx_port.layers.row_cache import RowCache, RowPositions
from mlx_port.runtime.switches import EarlyLaunch
from mlx_port.steps.add_norm import Norm, add_norm
from mlx_port.steps.chain import chain
from mlx_port.steps.row_keys import attend_cached
from mlx_port.steps.splitting import Heads

Product = Callable[[mx.array], mx.array]
Split = Callable[[mx.array, mx.array | None], Heads]  # of a joined product's rows, with the spin
Attend = Callable[[int, mx.array, mx.array, mx.array], mx.array]  # layer, queries, keys, values → as queries


@dataclass(frozen=True, eq=False)
class StackLayer:
    """A layer: its products and feed-forward, and the norms before attention and feed-forward."""

    qkv: Product
    split: Split
    out: Product
    norms: tuple[Norm, Norm]
    feed: Product


def gated(gate_up: Product, down: Product) -> Product:
    """Build a feed-forward: down of silu(gate) · up, whose products are joined."""

    def feed(x: mx.array) -> mx.array:
        gate, up = mx.split(gate_up(x), 2, axis=-1)
        return down(gate * mx.sigmoid(gate) * up)

    return feed


def attending(cache: Sequence[RowCache], scale: float) -> Attend:
    """Build attention to the caches of the layers, which are at the rows' positions."""

    def attend(layer: int, queries: mx.array, keys: mx.array, values: mx.array) -> mx.array:
        held = cache[layer]
        return attend_cached(queries, *held.extend(keys, values), held.at, scale)

    return attend


def trial_cache(layers: int, heads: int, width: int, kind: mx.Dtype) -> list[RowCache]:
    """Build caches of one row at its first position, for the trials of kernels."""
    at, shape = RowPositions(1), (1, heads, 1, width)
    at.level(0)
    return [RowCache(mx.zeros(shape, kind), mx.zeros(shape, kind), at) for _ in range(layers)]


class FusedStack:
    """The layers of a transformer and its last norm.

    kind: of activations.
    is_apart: each layer's work is compiled by itself; False inside of a function that is compiled.
    """

    def __init__(self, layers: Sequence[StackLayer], norm: Norm, kind: mx.Dtype, *, is_apart: bool):
        self.layers, self.norm, self.kind = layers, norm, kind
        ends = [partial(self._end, index) for index in range(len(layers))]
        self.ends = [chain(end) for end in ends] if is_apart else ends
        self.launch = EarlyLaunch(len(layers) if is_apart else 0)

    def begin(self, x: mx.array, normed: mx.array, spin: mx.array | None) -> tuple[mx.array, ...]:
        """Begin the first layer with rows and their norm, (R, D) each, for `run`. spin: from Spins."""
        first = self.layers[0]
        return x, *first.split(first.qkv(normed), spin)

    def start(self, x: mx.array, spin: mx.array | None) -> tuple[mx.array, ...]:
        """Begin the first layer with rows, (R, D), for `run`."""
        return self.begin(x, self.layers[0].norms[0](x), spin)

    def run(self, begun: tuple[mx.array, ...], spin: mx.array | None, attend: Attend) -> mx.array:
        """Run rows that have begun. → (R, D), after the last norm.

        attend: takes a layer's queries (R, H, 1, E), and keys and values to be kept (R, K, 1, E).
        """
        x, queries, *fresh = begun
        for index, end in enumerate(self.ends):
            x, queries, *fresh = end(x, attend(index, queries, *fresh), spin)
            self.launch(1 + index, x)
        return x

    def _end(
        self, index: int, x: mx.array, attended: mx.array, spin: mx.array | None
    ) -> tuple[mx.array, ...]:
        """Add a layer's attention and feed-forward. → rows (R, D), the next layer's queries, keys, values.

        After the last layer: its norm, and nothing else of use.
        """
        layer, last = self.layers[index], index + 1 == len(self.layers)
        x, normed = self._half(x, layer.out(attended.flatten(1)), layer.norms[1])
        norm = self.norm if last else self.layers[index + 1].norms[0]
        x, normed = self._half(x, layer.feed(normed), norm)
        if last:
            return normed, attended, attended, attended
        following = self.layers[index + 1]
        return x, *following.split(following.qkv(normed), spin)

    def _half(self, x: mx.array, added: mx.array, norm: Norm) -> tuple[mx.array, mx.array]:
        return add_norm(x, added.astype(self.kind), norm, self.kind)
