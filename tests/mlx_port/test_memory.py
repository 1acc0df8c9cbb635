"""Weights stay in memory where macOS can keep them."""

import platform

import mlx.core as mx
import pytest

import mlx_port.memory


@pytest.mark.parametrize(
    ("backend", "macos", "limits"),
    [
        ("mlx-metal", "15.1", [9]),
        ("mlx-metal", "26.0.1", [9]),
        ("mlx-metal", "14.7", []),
        ("mlx-cuda", "", []),
        ("mlx-cpu", "15.0", []),
    ],
)
def test_the_wired_limit(
    backend: str, macos: str, limits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(mlx_port.memory, "backend_name", lambda: backend)
    monkeypatch.setattr(platform, "mac_ver", lambda: (macos, ("", "", ""), ""))
    monkeypatch.setattr(mx, "device_info", lambda: {"max_recommended_working_set_size": 9})
    monkeypatch.setattr(mx, "set_wired_limit", asked.append)
    mlx_port.memory.wire()
    assert asked == limits
