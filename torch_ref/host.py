"""The device of a network, for pipelines (tts_core.nn.host)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from torch_ref.device import backend_name, free_bytes, name_of, peak_bytes, reset_peak, to_device
from torch_ref.limits.precision import Codec
from tts_core.codecs.policy import CodecPolicy
from tts_core.memory.machine import Machine
from tts_core.nn.beside import Done, Pending


class Weighted(Protocol):
    """A layer with a weight."""

    @property
    def weight(self) -> Tensor:
        """The weight, on the network's device and in its dtype."""
        ...


class _Copies:
    """Tensors being copied to the host, on the current stream."""

    def __init__(self, tensors: Sequence[Tensor]):
        self._copies = [torch.empty(x.shape, dtype=x.dtype, pin_memory=True) for x in tensors]
        for copy, x in zip(self._copies, tensors, strict=True):
            copy.copy_(x, non_blocking=True)
        self._arrived = torch.cuda.Event()
        self._arrived.record()

    def ready(self) -> bool:
        """Return True once all are there."""
        return self._arrived.query()

    def take(self) -> list[np.ndarray]:
        """Wait for the copies. The arrays are views of pinned memory: copy what is kept."""
        self._arrived.synchronize()
        return [copy.numpy() for copy in self._copies]


class Host:
    """The device and dtype of a layer's weight. codec: of the same pipeline, for memory plans."""

    codec: Codec | None = None
    measured = 1.0

    def __init__(self, layer: Weighted):
        self.layer = layer

    @property
    def dtype(self) -> str:
        """Name of the weight's dtype."""
        return name_of(self.layer.weight.dtype)

    @property
    def backend(self) -> str:
        """Backend name as in tts_core.memory.machine, such as "torch-cpu"."""
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

    def used_bytes(self) -> None:
        """Return None: windows on CUDA run beside the steps, and other devices have no peak of their own."""

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
        return to_device(array, self.layer.weight.device)

    def to_host(self, x: Tensor) -> np.ndarray:
        """Wait for the device and return the array."""
        return x.cpu().numpy()

    def launch(self, work: Callable[[], Sequence[Tensor]]) -> Pending[list[np.ndarray]]:
        """Begin work, on CUDA on a second stream. Returns its arrays; copy what is kept.

        The work reads weights, and tensors that it copies to the device or computes itself. All that it
        allocates belongs to the second stream, so memory that it frees is used again in the order of that
        stream, and no tensor crosses to the first one.
        """
        if not self.overlaps:
            return Done([self.to_host(x) for x in work()])
        with torch.cuda.stream(self._stream):
            return _Copies(work())

    @cached_property
    def _stream(self) -> torch.cuda.Stream:
        """The second stream, of the lowest priority: captured steps have a higher one."""
        device = self.layer.weight.device
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))  # weights are there
        return stream
