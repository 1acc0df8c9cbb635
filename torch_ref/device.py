"""Devices and dtypes of the reference: defaults, and a device's memory."""

from __future__ import annotations

import logging
import resource
import sys
from typing import NamedTuple

import numpy as np
import torch

from torch_ref.limits import backend_of
from torch_ref.limits.rule import Call
from torch_ref.limits.table import hits
from tts_core import models
from tts_core.errors import UsageError
from tts_core.memory import computer

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}
NATIVE_BFLOAT16 = (8, 0)  # compute capability
_LOG = logging.getLogger("torch_ref")


class Precision(NamedTuple):
    """Device and dtype of a model.

    dtype: of its language model's weights, and so of caches, speaker vectors and activations.
    """

    device: torch.device
    dtype: torch.dtype

    @property
    def wide(self) -> torch.dtype:
        """Dtype of parts that need at least float32: norms, softmax, logits and sampling, and whole networks
        that are small or read waveforms.
        """
        return torch.promote_types(self.dtype, torch.float32)


def choose(device: str | None, dtype: str | None, model: str | None = None) -> Precision:
    """Choose device and dtype of a model, as requested or by default, and log them in one line.

    model: its name, for its own default dtype. Raises UsageError as `choose_device` and `choose_dtype` do.
    """
    target = choose_device(device)
    chosen = choose_dtype(dtype, target, model)
    default, why = default_dtype(target, model)
    taken = "as requested" if device is not None else "the first available of cuda, mps and cpu"
    reason = why if dtype is None else f"as requested; {default} is the default: {why}"
    _LOG.info("device %s (%s), dtype %s (%s)", target, taken, name_of(chosen), reason)
    return Precision(target, chosen)


def choose_device(wanted: str | None) -> torch.device:
    """Return the requested device; for None the first available of CUDA, MPS and CPU.

    Raises UsageError if the requested device is not available.
    """
    if wanted is None:
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(wanted)
    except RuntimeError:
        raise UsageError(f"device: {wanted!r} is not a device; use cpu, cuda, cuda:N or mps") from None
    counts = {
        "cuda": lambda: torch.cuda.device_count() if torch.cuda.is_available() else 0,
        "mps": lambda: int(torch.backends.mps.is_available()),
        "cpu": lambda: 1,
    }
    if device.type not in counts or (device.index or 0) >= counts[device.type]():
        raise UsageError(
            f"device: {wanted} is not available on this machine; use cpu, or omit it for the default"
        )
    return device


def choose_dtype(wanted: str | None, device: torch.device, model: str | None = None) -> torch.dtype:
    """Return the requested dtype, by name; for None the `default_dtype` of device and model.

    Raises UsageError for an unknown name, and for a dtype that the device's backend does not support by the
    table of torch_ref.limits. bfloat16 that a GPU only emulates is slow, but allowed.
    """
    name = default_dtype(device, model)[0] if wanted is None else wanted
    if name not in DTYPES:
        raise UsageError(f"dtype: {name!r} is not one of {', '.join(DTYPES)}")
    backend = backend_of(device)
    if backend is not None:
        sample = torch.empty(0, dtype=DTYPES[name], device="meta")
        for rule, message in hits(Call("tensor", {"x": sample}, backend)):
            if rule.effect in ("error", "abort"):
                raise UsageError(f"dtype: {name} is not supported on {backend} ({message}); {rule.remedy}")
    return DTYPES[name]


def default_dtype(device: torch.device, model: str | None = None) -> tuple[str, str]:
    """Return the name of a model's default dtype on a device, and the reason.

    On MPS the model's spec decides.
    """
    if device.type == "cuda":
        if torch.version.hip is not None:
            return "bfloat16", "every GPU of ROCm supports it"
        major, minor = capability = torch.cuda.get_device_capability(device)
        if capability >= NATIVE_BFLOAT16:  # is_bf16_supported() is True for emulation too
            return "bfloat16", f"native at compute capability {major}.{minor}"
        return "float16", f"bfloat16 is only emulated at compute capability {major}.{minor}"
    if device.type == "mps" and model is not None:
        return models.MODELS[model].on_mps
    if device.type == "mps":
        return "float32", "a float16 network may overflow; each model has its own default"
    return "float32", "few CPUs compute faster in half precision"


def name_of(dtype: torch.dtype) -> str:
    """Return the name of a dtype, such as "float32"."""
    return str(dtype).removeprefix("torch.")


def reset_peak(device: torch.device) -> None:
    """Reset the peak counter of a device that has one."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_bytes(device: torch.device) -> int:
    """Return CUDA's allocator peak since `reset_peak`.

    MPS: memory held by the driver now. CPU: the process's peak so far.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if device.type == "mps":
        return torch.mps.driver_allocated_memory()
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def free_bytes(device: torch.device) -> int | None:
    """Return the memory that this process may still allocate there; None if unknown.

    CUDA: free memory of the driver and unused memory of the allocator. MPS: the rest of the working set that
    Apple recommends, limited by the system's free memory, as both share one memory.
    """
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    free = computer.free_bytes()
    if device.type == "mps":
        left = torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()
        return max(0, left if free is None else min(left, free))
    return free


def backend_name(device: torch.device) -> str:
    """Return a device's backend name, as in tts_core.memory.terms."""
    return f"torch-{device.type}"


def to_device(array: np.ndarray, device: torch.device) -> torch.Tensor:
    """Copy an array to a device. Does not wait: CUDA uses pinned memory."""
    x = torch.from_numpy(np.ascontiguousarray(array))
    return (x.pin_memory() if device.type == "cuda" else x).to(device, non_blocking=True)


def tensor(array: np.ndarray) -> torch.Tensor:
    """Share the memory of an array, or copy one that cannot be written."""
    return torch.from_numpy(array if array.flags.writeable else array.copy())
