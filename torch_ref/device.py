"""Which device the reference runs on."""

from __future__ import annotations

import torch

from tts_core.errors import UsageError


def choose_device(wanted: str | None) -> torch.device:
    """The device asked for; for None CUDA, then MPS, then the CPU, whichever is there first.

    Raises UsageError where the device asked for is not there.
    """
    if wanted is None:
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(wanted)
    except RuntimeError:
        raise UsageError(f"device: {wanted!r} is not a device; use cpu, cuda, cuda:N or mps") from None
    present = {"cuda": torch.cuda.is_available, "mps": torch.backends.mps.is_available, "cpu": lambda: True}
    if device.type not in present or not present[device.type]():
        raise UsageError(
            f"device: {wanted} is not available on this machine; use cpu, or leave the choice to us"
        )
    return device
