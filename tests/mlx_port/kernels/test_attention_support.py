"""When mx.fast's attention is used, on devices that are not here."""

from __future__ import annotations

import mlx.core as mx
import pytest

from mlx_port.kernels import attention_support, source


@pytest.mark.parametrize(
    ("keys", "groups", "tried"), [(1024, 4, True), (1023, 4, False), (2000, 1, False), (4096, 2, True)]
)
def test_long_grouped_queries_have_a_trial(
    keys: int, groups: int, tried: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that fails leaves them to blocks."""
    asked: list[object] = []
    monkeypatch.setattr(mx, "default_device", lambda: mx.Device(mx.DeviceType.gpu))
    monkeypatch.setattr(mx.metal, "is_available", lambda: True)
    monkeypatch.setattr(source, "passes", lambda *given: bool(asked.append(given)))
    query, key = mx.zeros((1, 2 * groups, 1, 128)), mx.zeros((1, 2, keys, 128))
    assert attention_support.has_kernel(query, key, key, None, False) is not tried
    assert asked == ([(attention_support.trial, mx.float32, groups, 128)] if tried else [])


def test_the_trial_is_right_here() -> None:
    assert attention_support.trial(mx.float32, 4, 64)
    assert attention_support.trial(mx.bfloat16, 2, 128)


def test_the_trial_sees_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    right = mx.fast.scaled_dot_product_attention

    def wrong(*parts: mx.array, scale: float) -> mx.array:
        return right(*parts, scale=1.3 * scale)

    monkeypatch.setattr(mx.fast, "scaled_dot_product_attention", wrong)
    assert not attention_support.trial(mx.float32, 4, 64)
