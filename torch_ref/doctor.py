"""Torch's devices on this machine, the limits that apply to them, and a test computation."""

from __future__ import annotations

from typing import Any

import torch

from torch_ref.device import choose_device, default_dtype, free_bytes
from torch_ref.limits import Backend, active


def facts() -> dict[str, Any]:
    """Report version, devices with their rules, memory in bytes, defaults with reasons, TF32, and the fault
    of a small test computation (None if it is correct).
    """
    chosen = choose_device(None)
    dtype, why = default_dtype(chosen)
    return {
        "version": torch.__version__,
        "default": {"device": str(chosen), "dtype": dtype, "why": why},
        "devices": [_describe(device) for device in _devices()],
        "tf32": _tf32(),
        "fault": _fault(chosen),
    }


def _devices() -> list[torch.device]:
    """List the available devices."""
    found = [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        found.append(torch.device("mps"))
    return [*found, torch.device("cpu")]


def _describe(device: torch.device) -> dict[str, Any]:
    """Describe a device: name, free memory, default dtype, and the active rules of torch_ref.limits."""
    name, backend = "the processor", Backend.here(device.type) if device.type != "cuda" else None
    if device.type == "cuda":
        capability = "{}.{}".format(*torch.cuda.get_device_capability(device))
        name = f"{torch.cuda.get_device_name(device)}, capability {capability}"
        backend = Backend("cuda", torch.__version__, None, capability)
    elif backend is not None and device.type == "mps":
        name = f"{backend.chip or 'Apple GPU'}, macOS {backend.macos or 'unknown'}"
    rules = [] if backend is None else active(backend)
    return {
        "device": str(device),
        "name": name,
        "memory_free": free_bytes(device),
        "dtype": default_dtype(device)[0],
        "rules": [
            {"id": rule.id, "condition": rule.condition, "effect": rule.effect, "remedy": rule.remedy}
            for rule in rules
        ],
    }


def _tf32() -> str:
    """Report whether CUDA may round float32 products and convolutions to TF32."""
    if not torch.cuda.is_available():
        return "without effect: no CUDA"
    names = {"products": torch.backends.cuda.matmul, "convolutions": torch.backends.cudnn}
    on = [name for name, module in names.items() if module.allow_tf32]
    return f"on for {' and '.join(on)}" if on else "off"


def _fault(device: torch.device) -> str | None:
    """Report the fault of a product, a convolution and a softmax of small integers; None if correct."""
    try:
        x = torch.arange(24, dtype=torch.float32, device=device).reshape(1, 8, 3)
        product = (x[0] @ x[0].T)[1, 2].item()
        weight = torch.ones(2, 3, 3, device=device)
        convolved = torch.nn.functional.conv1d(x.mT.contiguous(), weight, padding=1)[0, 1, 1].item()
        total = x.softmax(dim=-1).sum().item()
    except (RuntimeError, AssertionError) as error:
        return f"{type(error).__name__}: {error}".partition("\n")[0]
    right = abs(product - 86) < 0.5 and abs(convolved - 36) < 0.5 and abs(total - 8) < 0.01
    return None if right else f"it computes {product}, {convolved} and {total} instead of 86, 36 and 8"
