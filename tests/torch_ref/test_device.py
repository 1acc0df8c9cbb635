"""Device and dtype policy: a choice is applied, or refused in one line. Other machines are simulated."""

import logging
import platform
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import torch_ref
from torch_ref import device as policy
from torch_ref.limits import backend
from tts_core.errors import UsageError
from tts_core.voice.embedded import CODEC, DIA

Machine = Callable[..., None]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """Simulate GPUs: a number of CUDA devices with a capability, and MPS with a macOS version."""

    def make(
        cuda: int = 0, capability: tuple[int, int] = (8, 0), macos: str | None = None, version: str = "2.13.0"
    ) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: cuda)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: capability)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: macos is not None)
        monkeypatch.setattr(platform, "mac_ver", lambda: (macos or "", ("", "", ""), "arm64"))
        monkeypatch.setattr(torch, "__version__", version)
        backend._here.cache_clear()

    yield make
    backend._here.cache_clear()


@pytest.mark.parametrize(
    ("here", "device", "dtype"),
    [
        ({}, "cpu", "float32"),
        ({"cuda": 1, "capability": (9, 0)}, "cuda", "bfloat16"),
        ({"cuda": 1, "capability": (8, 0)}, "cuda", "bfloat16"),
        ({"cuda": 1, "capability": (7, 5)}, "cuda", "float16"),  # a T4
        ({"cuda": 1, "capability": (6, 1)}, "cuda", "float16"),
        ({"macos": "15.2"}, "mps", "float32"),
        ({"macos": "14.0"}, "mps", "float32"),
        ({"cuda": 1, "macos": "15.2"}, "cuda", "bfloat16"),
    ],
)
def test_what_is_taken_where_nothing_is_asked_for(
    machine: Machine, here: dict[str, Any], device: str, dtype: str
) -> None:
    machine(**here)
    target, chosen = policy.choose(None, None)
    assert (target.type, policy.name_of(chosen)) == (device, dtype)


@pytest.mark.parametrize("dtype", policy.DTYPES)
@pytest.mark.parametrize(
    ("here", "device"),
    [({}, "cpu"), ({"cuda": 2}, "cuda:1"), ({"cuda": 1, "macos": "15.2"}, "cpu"), ({"macos": "14.0"}, "mps")],
)
def test_a_choice_is_honoured(machine: Machine, here: dict[str, Any], device: str, dtype: str) -> None:
    machine(**here)
    if (device, dtype) == ("mps", "float64"):
        return  # below
    target, chosen = policy.choose(device, dtype)
    assert (str(target), policy.name_of(chosen)) == (device, dtype)


def test_emulated_bfloat16_is_slow_not_refused(machine: Machine) -> None:
    machine(cuda=1, capability=(7, 5))
    assert policy.choose_dtype("bfloat16", torch.device("cuda")) == torch.bfloat16


@pytest.mark.parametrize(
    ("here", "dtype", "remedy"),
    [
        ({"macos": "15.2"}, "float64", "compute tables in float64 on the host"),
        ({"macos": "15.2"}, "float8", "is not one of float32, bfloat16, float16, float64"),
    ],
)
def test_a_dtype_that_is_not_there_is_refused(
    machine: Machine, here: dict[str, Any], dtype: str, remedy: str
) -> None:
    machine(**here)
    with pytest.raises(UsageError) as caught:
        policy.choose("mps", dtype)
    message = str(caught.value)
    assert message.startswith("dtype: ")
    assert dtype in message
    assert remedy in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("here", "device"),
    [
        ({}, "cuda"),
        ({}, "cuda:0"),
        ({}, "mps"),
        ({"cuda": 1}, "cuda:1"),
        ({"cuda": 1}, "mps"),
        ({"macos": "15.2"}, "mps:1"),
        ({}, "xpu"),
        ({}, "meta"),
        ({}, "metal"),
        ({}, ""),
    ],
)
def test_a_device_that_is_not_there_is_refused(machine: Machine, here: dict[str, Any], device: str) -> None:
    machine(**here)
    with pytest.raises(UsageError, match=r"^device: .* use cpu") as caught:
        policy.choose(device, None)
    assert "\n" not in str(caught.value)


def test_load_refuses_before_it_reads(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine()
    monkeypatch.setattr("torch_ref.loading.open_published", lambda *_, **__: pytest.fail("files were opened"))
    with pytest.raises(UsageError, match="device: cuda is not available"):
        torch_ref.load(DIA, codec=CODEC, device="cuda")
    with pytest.raises(
        UsageError, match=r"^dtype: 'int8' is not one of float32, bfloat16, float16, float64$"
    ):
        torch_ref.load(DIA, codec=CODEC, dtype="int8")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_the_choice_is_logged_in_one_line(dtype: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "torch_ref"):
        voice = torch_ref.DiaPipeline.load(DIA, codec=CODEC, device="cpu", dtype=dtype)
    [record] = [record for record in caplog.records if record.name == "torch_ref"]
    message = record.getMessage()
    assert message.startswith(f"device cpu (as requested), dtype {dtype or 'float32'} (")
    assert "\n" not in message
    weight = voice.engine.network.logits_dense.weight
    assert policy.name_of(weight.dtype) == (dtype or "float32")
    assert voice.engine.codec.decoder.conv2.weight.dtype == torch.float32
    assert voice.engine.network.model.decoder.norm.weight.dtype == torch.float32
