"""Where a network computes, as pipelines ask for it (tts_core.nn.host)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from torch_ref.device import name_of
from torch_ref.memory import backend_name, free_bytes, peak_bytes, reset_peak


class Host:
    """Where a layer's weight lies, and in which dtype."""

    def __init__(self, layer: Any):
        self.layer = layer

    @property
    def dtype(self) -> str:
        """Of the weight, by name."""
        return name_of(self.layer.weight.dtype)

    @property
    def backend(self) -> str:
        """A name in tts_core.dia.memory."""
        return backend_name(self.layer.weight.device)

    def free_bytes(self) -> int | None:
        """What may still be taken there; None where nobody tells."""
        return free_bytes(self.layer.weight.device)

    def reset_peak(self) -> None:
        """Start counting memory anew."""
        reset_peak(self.layer.weight.device)

    def peak_bytes(self) -> int:
        """The peak since `reset_peak`, or what stands for it (memory.py)."""
        return peak_bytes(self.layer.weight.device)

    def to_device(self, array: np.ndarray) -> Tensor:
        """A copy that the networks read. Waits for nothing: to CUDA it goes through pinned memory."""
        device, x = self.layer.weight.device, torch.from_numpy(np.ascontiguousarray(array))
        return (x.pin_memory() if device.type == "cuda" else x).to(device, non_blocking=True)

    def to_host(self, x: Tensor) -> np.ndarray:
        """Wait for the device and read."""
        return x.cpu().numpy()
