"""Doctor's test computations find wrong numbers that appear only at size, in any dtype."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import pytest

from mlx_port import doctor


def test_nothing_is_wrong_here() -> None:
    assert doctor._fault() is None


def test_wrong_transposed_convolutions_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond 8,192 samples, in bfloat16 only."""
    right = mx.conv_transpose1d

    def wrong(x: mx.array, weight: mx.array, **given: Any) -> mx.array:
        made = right(x, weight, **given)
        return made.at[:, 8192:].add(1) if x.dtype == mx.bfloat16 else made

    monkeypatch.setattr(mx, "conv_transpose1d", wrong)
    assert str(doctor._fault()).startswith("transposed convolutions in bfloat16: ")


def test_wrong_products_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousandth of one row, as TF32 gives sums of larger numbers; and errors are lines."""
    right = mx.array.__matmul__
    monkeypatch.setattr(mx.array, "__matmul__", lambda x, y: right(x, y).at[1000].multiply(1.02))
    assert "products in float32: " in str(doctor._fault())
    monkeypatch.setattr(mx.array, "__matmul__", lambda x, y: (_ for _ in ()).throw(RuntimeError("no kernel")))
    assert doctor._fault() == "RuntimeError: no kernel"
