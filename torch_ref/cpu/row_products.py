"""Products of a few float32 rows on a CPU, in which a row's numbers do not depend on the other rows.

Three forms, of which the first is taken whose rows are independent in small blocks (tts_core.nn.row_calls):
packed float16 weights, weight · rowsᵀ, which torch reads twice as fast as the usual form (2 rows, 17 MB: 1.5
ms instead of 3.9), and the usual one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from torch_ref.cpu import half_weights
from torch_ref.cpu.half_weights import Product
from tts_core.nn.row_calls import FIXED, NARROW, WIDE, Calls, first_independent

Weights = Sequence[Tensor]  # of parallel layers, (N, D) each


class RowProducts:
    """The form of all products of a network, and their calls. Rows are given in whole blocks of `calls`."""

    def __init__(self, every: Sequence[Weights], *, pack: bool):
        """every: the weights of each product.  pack: keep a copy of weights that float16 holds."""
        flat = [weight for weights in every for weight in weights]
        halves = pack and half_weights.supported() and half_weights.exact(flat)
        self.form, self.calls = _chosen([_packed] if halves else [], every)

    def __call__(self, weights: Weights) -> Product:
        """Build a product. (R, D) → (R, ΣN), for whole blocks of rows."""
        product, most = self.form(weights), self.calls.most

        def apply(x: Tensor) -> Tensor:
            if len(x) <= most:
                return product(x)
            return torch.cat([product(part) for part in x.split(self.calls.sizes(len(x)))])

        return apply


Form = Callable[[Weights], Product]


def _packed(weights: Weights) -> Product:
    return half_weights.packed(torch.cat(list(weights)))


def _transposed(weights: Weights) -> Product:
    return lambda x: torch.cat([F.linear(weight, x) for weight in weights]).t().contiguous()


def _usual(weights: Weights) -> Product:
    return lambda x: torch.cat([F.linear(x, weight) for weight in weights], dim=-1)


def _chosen(packing: Sequence[Form], every: Sequence[Weights]) -> tuple[Form, Calls]:
    shapes = {tuple(tuple(weight.shape) for weight in weights): weights for weights in every}
    for form in (*packing, _transposed, _usual):
        products = [(_on_host(form(weights)), weights[0].shape[1]) for weights in shapes.values()]
        choices = (*NARROW, *WIDE, *FIXED) if form is _usual else NARROW
        calls = first_independent(products, choices)
        if calls is not None:
            return form, calls
    return _usual, FIXED[-1]


def _on_host(product: Product) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: product(torch.from_numpy(x)).detach().numpy()
