"""The layers of a transformer on kernels and joined weights: one row of every text in, the same row after all
layers out.

Rounded where the layers round; sums in another order. Up to three rows take five launches a layer, each bound
by the weights' bytes; more rows take matrix products with the work between them fused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch.nn.functional as F
from torch import Tensor

from torch_ref.cuda import pointwise
from torch_ref.cuda.attention import Pairing, Workspace, attend
from torch_ref.cuda.prompt_attention import attend_prompts
from torch_ref.cuda.rows import MOST_ROWS, add_linear, gated_linear, normed_linear
from torch_ref.layers.rope import Rotation


@dataclass(frozen=True, eq=False)
class StackLayer:
    """One layer's weights, those of parallel products joined; norms rounded as the layer does.

    heads: (2, E) float32, the norms of queries and keys; None without them.
    """

    before: Tensor
    after: Tensor
    heads: Tensor | None
    qkv: Tensor
    out: Tensor
    gate_up: Tensor
    down: Tensor


@dataclass(frozen=True, eq=False)
class StackMemory:
    """Keys and values of R rows, (R, K, capacity, E) per layer, and attention's workspace."""

    keys: list[Tensor]
    values: list[Tensor]
    work: Workspace


class FusedStack:
    """The layers of one transformer.

    scale: of attention's scores.
    rotation: tables of all positions; None without rotary positions.
    most_few: rows that take the kernels of few rows.
    """

    def __init__(
        self,
        layers: Sequence[StackLayer],
        eps: float,
        scale: float,
        rotation: Rotation | None,
        *,
        pairing: Pairing = "halves",
        most_few: int = MOST_ROWS,
    ):
        self.layers, self.eps, self.scale, self.rotation = layers, eps, scale, rotation
        self.pairing: Pairing = pairing
        self.most_few = most_few

    def run(
        self, x: Tensor, slots: Tensor, positions: Tensor, memory: StackMemory
    ) -> tuple[Tensor, Tensor | None]:
        """Run a row of each text, x (R, D), which is overwritten.

        slots, positions: (R,) or (1,) int64, of the row in the cache and of its angles.
        Returns x, and what is still to be added to it or None.
        """
        attend = partial(self._attend, slots=slots, positions=positions, memory=memory)
        return (self._few if len(x) <= self.most_few else self._many)(x, attend)

    def read(self, x: Tensor, spots: Tensor, memory: StackMemory) -> tuple[Tensor, Tensor | None]:
        """Run B prompts of T rows, x (B·T, D), which is overwritten, and keep their keys and values.

        spots: as of `attend_prompts`. Returns as `run` does.
        """
        return self._many(x, partial(self._attend_prompts, spots=spots, memory=memory))

    def norm_linear(self, x: Tensor, added: Tensor | None, gain: Tensor, weight: Tensor) -> Tensor:
        """Apply a linear map to the normed result of `run`. → (R, N)."""
        if len(x) <= self.most_few:
            return normed_linear(x, gain, self.eps, weight)
        return self._norm_linear(x, added, gain, weight)

    def compiling(self, x: Tensor, slots: Tensor, memory: StackMemory) -> list[Callable[[], object]]:
        """List calls that launch each kernel of a layer once, on arbitrary rows. x: (R, D)."""
        layer, eps, rows = self.layers[0], self.eps, len(x)
        projected = x.new_zeros(rows, len(layer.qkv))
        attended, inner = x.new_zeros(rows, layer.out.shape[1]), x.new_zeros(rows, layer.down.shape[1])
        both: list[Callable[[], object]] = [lambda: self._attend(projected, 0, slots, slots, memory)]
        if rows > self.most_few:
            return [
                *both,
                lambda: pointwise.add_norm(x, None, layer.before, eps),
                lambda: pointwise.add_norm(x, x, layer.before, eps),
                lambda: pointwise.gated(x.new_zeros(rows, len(layer.gate_up))),
            ]
        gate, up = layer.gate_up.chunk(2)
        return [
            *both,
            lambda: normed_linear(x, layer.before, eps, layer.qkv),
            lambda: add_linear(x, attended, layer.out),
            lambda: gated_linear(x, layer.after, eps, gate, up),
            lambda: add_linear(x, inner, layer.down),
        ]

    def _few(self, x: Tensor, attend: Callable[[Tensor, int], Tensor]) -> tuple[Tensor, None]:
        for index, layer in enumerate(self.layers):
            projected = normed_linear(x, layer.before, self.eps, layer.qkv)
            add_linear(x, attend(projected, index), layer.out)
            gate, up = layer.gate_up.chunk(2)
            add_linear(x, gated_linear(x, layer.after, self.eps, gate, up), layer.down)
        return x, None

    def _many(self, x: Tensor, attend: Callable[[Tensor, int], Tensor]) -> tuple[Tensor, Tensor | None]:
        added: Tensor | None = None
        for index, layer in enumerate(self.layers):
            projected = self._norm_linear(x, added, layer.before, layer.qkv)
            added = F.linear(attend(projected, index), layer.out)
            gate_up = self._norm_linear(x, added, layer.after, layer.gate_up)
            added = F.linear(pointwise.gated(gate_up), layer.down)
        return x, added

    def _norm_linear(self, x: Tensor, added: Tensor | None, gain: Tensor, weight: Tensor) -> Tensor:
        return F.linear(pointwise.add_norm(x, added, gain, self.eps).to(weight.dtype), weight)

    def _attend(
        self, projected: Tensor, index: int, slots: Tensor, positions: Tensor, memory: StackMemory
    ) -> Tensor:
        return attend(
            projected, slots, memory.keys[index], memory.values[index], memory.work, scale=self.scale,
            rotation=self.rotation, pairing=self.pairing, angles=positions,
            gains=self.layers[index].heads, eps=self.eps,
        )  # fmt: skip

    def _attend_prompts(self, projected: Tensor, index: int, spots: Tensor, memory: StackMemory) -> Tensor:
        return attend_prompts(
            projected, spots, memory.keys[index], memory.values[index], scale=self.scale,
            rotation=self.rotation, pairing=self.pairing, gains=self.layers[index].heads, eps=self.eps,
        )  # fmt: skip
