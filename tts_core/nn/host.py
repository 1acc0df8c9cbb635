"""The interface between a pipeline and the device that its networks run on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tts_core.memory.machine import Machine
from tts_core.nn.beside import Pending

if TYPE_CHECKING:
    from tts_core.codecs.policy import CodecPolicy


class Host(Protocol):
    """The device of a pipeline: `torch_ref.host.Host` or `mlx_port.host.Host`."""

    @property
    def dtype(self) -> str:
        """Name of the weights' dtype."""
        ...

    @property
    def backend(self) -> str:
        """Backend name as in tts_core.memory.machine, such as "mlx-metal"."""
        ...

    @property
    def overlaps(self) -> bool:
        """True if the device can run a codec beside the steps of another network."""
        ...

    def settle(self) -> None:
        """Where errors come with a later call, wait for all that was started, and raise its error."""
        ...

    def free_bytes(self) -> int | None:
        """Return the memory that may still be allocated; None if unknown."""
        ...

    measured: float  # as of Machine

    def used_bytes(self) -> int | None:
        """Return the bytes in use now where `peak_bytes` counts in the same way; else None."""
        ...

    def machine(self, policy: CodecPolicy | None = None) -> Machine:
        """Describe it for a memory plan, with what is free now. policy: the codec's windows."""
        ...

    def reset_peak(self) -> None:
        """Reset the peak memory counter."""
        ...

    def peak_bytes(self) -> int:
        """Return the peak since `reset_peak`, or the closest known figure."""
        ...


class Device(Host, Protocol):
    """A host that also carries arrays to its device and back, for engines."""

    def to_device(self, array: np.ndarray) -> Any:
        """Copy an array to the device, for networks to read."""
        ...

    def to_host(self, x: Any) -> np.ndarray:
        """Wait for the device and return the array."""
        ...

    def launch(self, work: Callable[[], Sequence[Any]]) -> Pending[list[np.ndarray]]:
        """Begin work that reads only weights and what it carries to the device itself, where the device
        `overlaps` beside all other work. Returns its arrays; copy what is kept.
        """
        ...
