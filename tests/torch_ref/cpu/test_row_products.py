"""Products of few rows on a CPU: a row's numbers do not depend on the other rows, in every form."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.tolerance import assert_within
from torch_ref.cpu import half_weights, row_products
from torch_ref.cpu.row_products import RowProducts
from tts_core.nn.row_calls import FIXED, Calls

# the embedded voice's, and odd ones
SHAPES = ((256, 256), (384, 256), (896, 256), (256, 448), (2080, 256), (67, 45), (5, 300))


def weights(rows: int, width: int, *, half: bool) -> torch.Tensor:
    numbers = np.random.default_rng(rows + width).normal(0, 0.1, (rows, width)).astype(np.float32)
    return torch.from_numpy(numbers.astype(np.float16).astype(np.float32) if half else numbers)


def padded(products: RowProducts, x: torch.Tensor) -> torch.Tensor:
    return F.pad(x, (0, 0, 0, products.calls.padded(len(x)) - len(x)))


@pytest.mark.parametrize("half", [True, False])
def test_rows_are_those_alone_and_those_of_float32(half: bool) -> None:
    every = [[weights(*shape, half=half)] for shape in SHAPES]
    every.append([every[0][0], every[1][0]])
    products = RowProducts(every, pack=half)
    for own in every:
        product, width = products(own), own[0].shape[1]
        x = torch.from_numpy(np.random.default_rng(1).normal(size=(33, width)).astype(np.float32))
        alone = torch.cat([product(padded(products, row[None]))[:1] for row in x])
        whole = torch.cat(own)
        truth = (x.double() @ whole.double().T).numpy()
        assert_within(alone.numpy(), (x @ whole.T).numpy(), truth, "row products")
        for rows in range(1, 34):
            found = product(padded(products, x[:rows]))[:rows]
            assert torch.equal(found, alone[:rows])
            assert torch.equal(product(padded(products, x[33 - rows :]))[:rows], alone[33 - rows :])


def test_weights_that_float16_does_not_hold_are_not_packed() -> None:
    halves, others = [[weights(8, 8, half=True)]], [[weights(8, 8, half=False)]]
    assert RowProducts(others, pack=True).form is not row_products._packed
    assert RowProducts(halves, pack=False).form is not row_products._packed


def test_a_form_whose_rows_depend_on_each_other_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of packed weights, and of all forms: then every row has a call of its own."""

    def uneven(own: row_products.Weights) -> half_weights.Product:
        return lambda x: x @ own[0].T + torch.arange(len(x))[:, None]

    every = [[weights(8, 8, half=True)]]
    monkeypatch.setattr(row_products, "_packed", uneven)
    monkeypatch.setattr(half_weights, "supported", lambda: True)
    assert RowProducts(every, pack=True).form is not uneven
    monkeypatch.setattr(row_products, "_transposed", uneven)
    monkeypatch.setattr(row_products, "_usual", uneven)
    products, x = RowProducts(every, pack=True), torch.ones(3, 8)
    assert products.calls == FIXED[-1] == Calls(1, 1)
    assert torch.equal(products(every[0])(x), products(every[0])(x[:1]).expand(3, -1))
