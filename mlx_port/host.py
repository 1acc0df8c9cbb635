"""Where a network computes, as pipelines ask for it (tts_core.nn.host)."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np

from mlx_port.memory import backend_name, free_bytes, peak_bytes, reset_peak


class Host:
    """MLX's default device; the dtype is that of a layer's weight."""

    def __init__(self, layer: Any):
        self.layer = layer

    @property
    def dtype(self) -> str:
        """Of the weight, by name."""
        return str(self.layer.weight.dtype).removeprefix("mlx.core.")

    @property
    def backend(self) -> str:
        """A name in tts_core.dia.memory."""
        return backend_name()

    def free_bytes(self) -> int | None:
        """What may still be taken there; None where nobody tells."""
        return free_bytes()

    def reset_peak(self) -> None:
        """Start counting memory anew."""
        reset_peak()

    def peak_bytes(self) -> int:
        """The peak since `reset_peak`, or what stands for it (memory.py)."""
        return peak_bytes()

    def to_device(self, array: np.ndarray) -> mx.array:
        """A copy that the networks read."""
        return mx.array(array)

    def to_host(self, x: mx.array) -> np.ndarray:
        """Wait for the device and read."""
        return np.array(x)
