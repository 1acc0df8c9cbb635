"""Steps that texts share, of every model but Dia, in float32 on a CPU: to the bit those of a text alone.

Dia: tests/parity/voice/test_exact_batches.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import pytest
import torch
import torch.nn.functional as F

from benchmarks.lib.exact_models import KINDS, built, compared
from benchmarks.lib.random_networks import PACKAGES
from mlx_port.steps import rows
from torch_ref.limits import independent

pytestmark = [
    pytest.mark.rest,
    pytest.mark.skipif(mx.default_device().type == mx.DeviceType.gpu, reason="the promise is for CPUs"),
]
TEXTS, STEPS, SIZES = range(8), 2, (3, 8)


@pytest.mark.parametrize("side", PACKAGES)
@pytest.mark.parametrize("model", KINDS)
def test_texts_have_the_codes_and_keys_that_they_have_alone(model: str, side: str) -> None:
    found = compared(model, side, built(model, side), TEXTS, STEPS, SIZES)
    assert found == {f"batches of {size}": [0, 0] for size in SIZES}


@pytest.mark.parametrize("threads", [2, 4])
@pytest.mark.parametrize("model", KINDS)
def test_in_several_threads_as_well(model: str, threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = compared(model, "torch", built(model, "torch"), TEXTS, STEPS, SIZES)
    finally:
        torch.set_num_threads(before)
    assert found == {f"batches of {size}": [0, 0] for size in SIZES}


@pytest.mark.parametrize("side", PACKAGES)
def test_products_that_depend_on_the_rows_are_seen(side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail: products that a batch changes in their last bits."""

    def uneven(layer: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda x: layer(x) * (1 + 1e-6 * len(x))

    monkeypatch.setattr(rows, "in_blocks", uneven)
    monkeypatch.setattr(independent, "linear", lambda x, *own: uneven(lambda given: F.linear(given, *own))(x))
    found = compared("mars5", side, built("mars5", side), range(4), 3, (4,))
    assert found["batches of 4"][1] > 0
