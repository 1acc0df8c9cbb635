"""What a pipeline asks the machine that its networks compute on."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np


class Host(Protocol):
    """`torch_ref.host.Host` or `mlx_port.host.Host`."""

    @property
    def dtype(self) -> str:
        """Of the weights, by name."""
        ...

    @property
    def backend(self) -> str:
        """A name in tts_core.dia.memory."""
        ...

    def free_bytes(self) -> int | None:
        """What may still be taken; None where nobody tells."""
        ...

    def reset_peak(self) -> None:
        """Start counting memory anew."""
        ...

    def peak_bytes(self) -> int:
        """The peak since `reset_peak`, or what stands for it."""
        ...

    def to_device(self, array: np.ndarray) -> Any:
        """A copy that the networks read."""
        ...

    def to_host(self, x: Any) -> np.ndarray:
        """Wait for the device and read."""
        ...
