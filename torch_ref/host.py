"""The device of a network, for pipelines (tts_core.nn.host)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from torch_ref.cuda.beside import Beside
from torch_ref.cuda.precision import Rounded
from torch_ref.device import backend_name, free_bytes, name_of, peak_bytes, reset_peak
from tts_core.codecs.policy import CodecPolicy
from tts_core.memory.machine import Machine
from tts_core.nn.beside import Done, Pending


class Weighted(Protocol):
    """A layer with a weight."""

    @property
    def weight(self) -> Tensor:
        """The weight, on the network's device and in its dtype."""
        ...


class Host:
    """The device and dtype of a layer's weight. codec: of the same pipeline, for memory plans."""

    codec: Rounded | None = None

    def __init__(self, layer: Weighted):
        self.layer = layer

    @property
    def dtype(self) -> str:
        """Name of the weight's dtype."""
        return name_of(self.layer.weight.dtype)

    @property
    def backend(self) -> str:
        """Backend name as in tts_core.memory.terms, such as "torch-cpu"."""
        return backend_name(self.layer.weight.device)

    @property
    def overlaps(self) -> bool:
        """True on CUDA, which has streams."""
        return self.layer.weight.is_cuda

    def settle(self) -> None:
        """Do nothing: a lack of memory is raised by the call that allocates."""

    def free_bytes(self) -> int | None:
        """Return the memory that may still be allocated there; None if unknown."""
        return free_bytes(self.layer.weight.device)

    def machine(self, policy: CodecPolicy | None = None) -> Machine:
        """Describe it for a memory plan, with what is free now. policy: the codec's windows."""
        precision = None if self.codec is None else self.codec.precision
        return Machine(self.dtype, self.backend, self.free_bytes(), policy=policy, codec_precision=precision)

    def reset_peak(self) -> None:
        """Reset the peak memory counter."""
        reset_peak(self.layer.weight.device)

    def peak_bytes(self) -> int:
        """Return the peak since `reset_peak`, or the closest known figure (device.py)."""
        return peak_bytes(self.layer.weight.device)

    def to_device(self, array: np.ndarray) -> Tensor:
        """Copy an array to the device, for networks to read. Does not wait: CUDA uses pinned memory."""
        device, x = self.layer.weight.device, torch.from_numpy(np.ascontiguousarray(array))
        return (x.pin_memory() if device.type == "cuda" else x).to(device, non_blocking=True)

    def to_host(self, x: Tensor) -> np.ndarray:
        """Wait for the device and return the array."""
        return x.cpu().numpy()

    def launch(self, work: Callable[[], Sequence[Tensor]]) -> Pending[list[np.ndarray]]:
        """Begin work, on CUDA on a second stream. Returns its arrays; copy what is kept."""
        if not self.overlaps:
            return Done([self.to_host(x) for x in work()])
        return self._beside.launch(work)

    @cached_property
    def _beside(self) -> Beside:
        return Beside(self.layer.weight.device)
