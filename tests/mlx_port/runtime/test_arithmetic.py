"""Float32 products are exact unless the user asks for TF32, whatever is imported first."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import pytest

from mlx_port.commands.arithmetic import codec_precision
from mlx_port.commands.serve.metrics import Metrics
from mlx_port.runtime import arithmetic

ASK = "import ctypes; get = ctypes.CDLL(None).getenv; get.restype = ctypes.c_char_p"
VALUE = "print(get(b'MLX_ENABLE_TF32'))"  # as MLX, written in C++, reads it


def said(program: str, value: str | None) -> list[str]:
    """Run a program in a process with a value of the variable; return its lines."""
    given = {name: text for name, text in os.environ.items() if name != arithmetic.VARIABLE}
    given["PYTHONPATH"] = str(Path(__file__).parents[2])
    if value is not None:
        given[arithmetic.VARIABLE] = value
    run = subprocess.run(
        [sys.executable, "-c", program], env=given, capture_output=True, text=True, check=True
    )
    return run.stdout.split("\n")[:-1]


@pytest.mark.parametrize(("value", "found"), [(None, "b'0'"), ("1", "b'1'"), ("0", "b'0'")])
def test_importing_the_package_sets_the_variable(value: str | None, found: str) -> None:
    """For this process and its children; a value of the user's stays."""
    child = "import subprocess, sys; print(subprocess.getoutput('echo $MLX_ENABLE_TF32'))"
    program = f"{ASK}; import mlx_port, sys; {VALUE}; print('mlx.core' in sys.modules); {child}"
    assert said(program, value) == [found, "False", found[2:-1]]


IN_ORDER = (
    "from mlx_port.runtime import arithmetic; "
    "arithmetic.matters = lambda: True; print(arithmetic.arithmetic())"
)


@pytest.mark.parametrize(
    ("before", "value", "found"),
    [
        ("pass", None, "float32"),
        ("import mlx.core as mx", None, "unknown"),
        ("import mlx.core as mx; mx.eval(mx.ones((2, 2)) @ mx.ones((2, 2)))", None, "unknown"),
        ("import mlx.core as mx", "0", "float32"),
        ("import mlx.core as mx", "1", "tf32"),
    ],
)
def test_the_order_of_imports(before: str, value: str | None, found: str) -> None:
    """As on a device with TF32. MLX may have computed before, and then nobody knows."""
    assert said(f"{before}; {IN_ORDER}", value) == [found]


@pytest.mark.parametrize(
    ("backend", "chip", "macos", "found"),
    [
        ("mlx-cpu", "", "", False),
        ("mlx-cuda", "sm_90", "", True),
        ("mlx-metal", "applegpu_g16s", "26.4", False),
        ("mlx-metal", "applegpu_g17s", "26.1", False),
        ("mlx-metal", "applegpu_g17s", "26.2", True),
        ("mlx-metal", "applegpu_g17g", "27.0.1", True),
        ("mlx-metal", "strange", "27.0", False),
    ],
)
def test_where_it_matters(
    backend: str, chip: str, macos: str, found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlx_port.runtime.memory.backend_name", lambda: backend)
    monkeypatch.setattr(mx, "device_info", lambda: {"architecture": chip})
    monkeypatch.setattr(platform, "mac_ver", lambda: (macos, ("", "", ""), ""))
    assert arithmetic.matters() is found
    assert arithmetic.described().startswith("float32 (")
    assert ("no TF32" in arithmetic.described()) is not found
    assert "Apple's from M5 on with macOS 26.2; not M1 to M4, nor any CPU" in arithmetic.described()


@pytest.mark.parametrize(
    ("value", "on"), [("1", True), (" +3x", True), ("-1", True), ("0", False), ("x", False), ("", False)]
)
def test_values_are_read_as_mlx_does(value: str, on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arithmetic, "matters", lambda: True)
    monkeypatch.setattr(arithmetic, "choose", lambda: "user")
    monkeypatch.setenv(arithmetic.VARIABLE, value)
    assert arithmetic.arithmetic() == ("tf32" if on else "float32")


def test_the_servers_metrics_name_it() -> None:
    metrics = Metrics()
    metrics.computes(lambda: "float32", lambda: {"dia": "tf32", "embedded": "float32"})
    assert b'mlx_port_arithmetic{arithmetic="float32"} 1.0' in metrics.text()
    assert b'mlx_port_codec_precision{model="dia",precision="tf32"} 1.0' in metrics.text()
    assert b'mlx_port_codec_precision{model="embedded",precision="float32"} 1.0' in metrics.text()


def test_codecs_of_mlx_have_its_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    """A codec of PyTorch has a precision of its own."""
    monkeypatch.setattr(arithmetic, "arithmetic", lambda: "unknown")
    assert codec_precision("mlx", "float32") == "unknown"
    assert codec_precision("torch", "tf32") == "tf32"
