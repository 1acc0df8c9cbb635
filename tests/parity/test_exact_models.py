"""Steps that texts share, of every model but Dia, in float32 on a CPU: to the bit those of a text alone.

Dia: tests/parity/voice/test_exact_batches.py.
"""

from __future__ import annotations

import mlx.core as mx
import pytest

from benchmarks.exact_models import KINDS, PACKAGES, built, compared, plain

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


@pytest.mark.parametrize("side", PACKAGES)
def test_plain_steps_differ_in_bits(side: str) -> None:
    """The test above can fail."""
    with plain("mars5", side):
        found = compared("mars5", side, built("mars5", side), range(4), STEPS, (4,))
    assert found["batches of 4"][1] > 0
