"""Wired memory on request only, and a bound for what MLX keeps."""

import platform

import mlx.core as mx
import pytest

import mlx_port
import mlx_port.runtime.memory
from mlx_port.runtime.memory import CACHED, WIRED_SPARE, bound_cache, wire
from tts_core.errors import UsageError


@pytest.mark.parametrize(
    ("wanted", "backend", "macos", "limits"),
    [
        (None, "mlx-metal", "26.0", []),
        ("0", "mlx-metal", "26.0", []),
        ("1", "mlx-metal", "15.1", [7 + WIRED_SPARE]),
        ("1", "mlx-metal", "26.0.1", [7 + WIRED_SPARE]),
        ("1", "mlx-metal", "14.7", []),
        ("1", "mlx-cuda", "", []),
        ("1", "mlx-cpu", "15.0", []),
    ],
)
def test_the_wired_limit(
    wanted: str | None, backend: str, macos: str, limits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    if wanted is None:
        monkeypatch.delenv("MLX_PORT_WIRED", raising=False)
    else:
        monkeypatch.setenv("MLX_PORT_WIRED", wanted)
    monkeypatch.setattr(mlx_port.runtime.memory, "backend_name", lambda: backend)
    monkeypatch.setattr(platform, "mac_ver", lambda: (macos, ("", "", ""), ""))
    monkeypatch.setattr(mx, "device_info", lambda: {"max_recommended_working_set_size": 10**12})
    monkeypatch.setattr(mx, "get_active_memory", lambda: 7)
    monkeypatch.setattr(mx, "set_wired_limit", asked.append)
    wire()
    assert asked == limits
    if limits:
        monkeypatch.setattr(mx, "device_info", lambda: {"max_recommended_working_set_size": 9})
        wire()
        assert asked[1:] == [9], "no more than the system recommends"


def test_a_bad_wish_is_refused_before_anything_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLX_PORT_WIRED", "yes")
    with pytest.raises(UsageError, match=r"^MLX_PORT_WIRED: 'yes' is not 0 or 1$"):
        mlx_port.load("/no/such/folder")


@pytest.mark.parametrize(
    ("info", "before", "limits"),
    [
        ({"memory_size": 64 << 30}, 10**12, [CACHED]),
        ({"total_memory": 80 << 30}, 5, [CACHED, 5]),
        ({"memory_size": 8 << 30}, 10**12, [512 << 20]),
    ],
    ids=["Mac of 64 GB", "a lower limit", "Mac of 8 GB"],
)
def test_unused_memory_is_bounded(
    info: dict[str, int], before: int, limits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lower limit of the caller's stays; a CPU has its own; a small Mac keeps less."""
    monkeypatch.setattr(mx, "device_info", lambda: info)
    asked: list[int] = []
    monkeypatch.setattr(mx, "set_cache_limit", lambda limit: asked.append(limit) or before)
    monkeypatch.setattr(mlx_port.runtime.memory, "backend_name", lambda: "mlx-cpu")
    bound_cache()
    assert asked == []
    monkeypatch.setattr(mlx_port.runtime.memory, "backend_name", lambda: "mlx-metal")
    bound_cache()
    assert asked == limits


def test_wired_memory_is_refused_under_mlx_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLX_RANK", "0")
    monkeypatch.setenv("MLX_PORT_WIRED", "1")
    with pytest.raises(UsageError, match=r"^MLX_PORT_WIRED: .* leave it out under mlx\.launch$"):
        wire()
    monkeypatch.setenv("MLX_PORT_WIRED", "0")
    wire()
