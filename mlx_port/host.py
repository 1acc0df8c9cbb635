"""The device of a network, for pipelines (tts_core.nn.host)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import mlx.core as mx
import numpy as np

from mlx_port.runtime.memory import backend_name, free_bytes, peak_bytes, reset_peak, used_bytes
from tts_core.codecs.policy import CodecPolicy
from tts_core.memory.machine import Machine
from tts_core.nn.beside import Done


class Weighted(Protocol):
    """A layer with a weight."""

    @property
    def weight(self) -> mx.array:
        """The weight, on the network's device and in its dtype."""
        ...


class Host:
    """MLX's default device, and the dtype of a layer's weight."""

    measured = 1.0

    def __init__(self, layer: Weighted):
        self.layer = layer

    @property
    def dtype(self) -> str:
        """Name of the weight's dtype."""
        return str(self.layer.weight.dtype).removeprefix("mlx.core.")

    @property
    def backend(self) -> str:
        """Backend name as in tts_core.memory.machine, such as "torch-cpu"."""
        return backend_name()

    @property
    def overlaps(self) -> bool:
        """False: MLX runs the work of a stream in order."""
        return False

    def settle(self) -> None:
        """On Metal, wait for all that was started, and raise its error; elsewhere errors come at once."""
        if self.backend == "mlx-metal":
            mx.synchronize()

    def free_bytes(self) -> int | None:
        """Return the memory that may still be allocated there; None if unknown."""
        return free_bytes()

    def used_bytes(self) -> int:
        """Return the bytes in use now."""
        return used_bytes()

    def machine(self, policy: CodecPolicy | None = None) -> Machine:
        """Describe it for a memory plan, with what is free now. policy: the codec's windows."""
        return Machine(self.dtype, self.backend, self.free_bytes(), policy=policy, measured=self.measured)

    def reset_peak(self) -> None:
        """Reset the peak memory counter."""
        reset_peak()

    def peak_bytes(self) -> int:
        """Return the peak since `reset_peak`, or the closest known figure (runtime/memory.py)."""
        return peak_bytes()

    def to_device(self, array: np.ndarray) -> mx.array:
        """Copy an array to the device, for networks to read."""
        return mx.array(array)

    def to_host(self, x: mx.array) -> np.ndarray:
        """Wait for the device and return the array."""
        return np.array(x)

    def launch(self, work: Callable[[], Sequence[mx.array]]) -> Done[list[np.ndarray]]:
        """Do work and return its arrays."""
        return Done([self.to_host(x) for x in work()])
