"""Choices of attention for devices that are not here."""

from __future__ import annotations

import mlx.core as mx
import pytest

from mlx_port.layers import attention


def test_a_mac_whose_default_device_is_its_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Metal is there, but the device's facts are the CPU's."""
    monkeypatch.setattr(mx.metal, "is_available", lambda: True)
    monkeypatch.setattr(mx, "device_info", lambda: {"architecture": "arm64"})
    blocks = attention.AttentionPolicy(native=False)
    assert attention._budget(blocks) == (attention.DEFAULT.budget_bytes or 0)
    query = mx.ones((1, 4, 3, 8))
    made = attention.scaled_dot_product_attention(query, query, query, policy=blocks)
    assert mx.allclose(made, query).item()
