"""Training in one or several processes: rank, shared clock, checkpoints."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch._dynamo
import torch.distributed as dist
from torch import Tensor, nn

T = TypeVar("T")


class Processes:
    """The processes started by torchrun, or only this one."""

    def __init__(self, seed: int):
        self.rank, self.size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        cuda = torch.cuda.is_available()
        self.device = (
            torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if cuda else torch.device("cpu")
        )
        if cuda:
            torch.cuda.set_device(self.device)
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
            torch.backends.cudnn.benchmark = True
            torch._dynamo.config.suppress_errors = True  # run uncompiled what does not compile
        if self.size > 1:
            dist.init_process_group("nccl" if cuda else "gloo", device_id=self.device if cuda else None)
        torch.manual_seed(seed)  # the same initial weights everywhere

    @property
    def first(self) -> bool:
        return self.rank == 0

    def share(self, tensors: list[Tensor]) -> None:
        """Copy the first process's values to all processes."""
        if self.size > 1:
            for tensor in tensors:
                dist.broadcast(tensor, 0)

    def average(self, tensors: list[Tensor]) -> None:
        """Replace each tensor with its mean over the processes.

        DistributedDataParallel does the same with gradients, but its hooks do not run in a CUDA graph
        (`replayed`).
        """
        if self.size > 1:
            flat = torch.cat([tensor.flatten() for tensor in tensors])
            dist.all_reduce(flat)
            flat /= self.size
            means = flat.split([tensor.numel() for tensor in tensors])
            for tensor, mean in zip(tensors, means, strict=True):
                tensor.copy_(mean.view_as(tensor))

    def say(self, line: str) -> None:
        if self.first:
            print(line, flush=True)

    def close(self) -> None:
        if self.size > 1:
            dist.barrier()
            dist.destroy_process_group()


class Clock:
    """Clock of a stage, equal in all processes; it continues from a checkpoint's time."""

    def __init__(self, processes: Processes, minutes: float, spent: float):
        self.processes, self.limit = processes, minutes * 60
        self.begun = time.monotonic() - spent
        self.progress = 0.0

    @property
    def spent(self) -> float:
        """Seconds of training so far."""
        return time.monotonic() - self.begun

    def look(self, step: int) -> float:
        """Share of the time that is over, 0 to 1, updated every tenth step."""
        if step % 10 == 0:
            now = torch.tensor([self.spent / self.limit], device=self.processes.device)
            self.processes.share([now])
            self.progress = float(now)
        return self.progress


def replayed(run: Callable[[], T], learned: list[nn.Parameter]) -> Callable[[], T]:
    """Capture `run`, a forward and backward pass on fixed tensors, as a CUDA graph with a single launch.

    Each call of the result overwrites the same outputs and gradients, and assigns these to the parameters.
    """
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            run()
            for parameter in learned:
                parameter.grad = None
    torch.cuda.current_stream().wait_stream(aside)
    torch.cuda.synchronize()
    for parameter in learned:
        parameter.grad = None
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # NCCL's thread keeps running
        made = run()
    gradients = [parameter.grad for parameter in learned]

    def again() -> T:
        graph.replay()
        for parameter, gradient in zip(learned, gradients, strict=True):
            parameter.grad = gradient
        return made

    return again


def learning_rate(peak: float, warmup: int, step: int, progress: float) -> float:
    """Linear rise over `warmup` steps, times a half cosine over the stage's time down to 2 %."""
    return peak * min(1.0, (step + 1) / warmup) * (0.02 + 0.49 * (1 + math.cos(math.pi * min(1.0, progress))))


def save(path: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint atomically."""
    unfinished = path.with_suffix(".part")
    torch.save(state, unfinished)
    os.replace(unfinished, path)


def restore(path: Path, device: torch.device) -> dict[str, Any] | None:
    """Read a checkpoint; None if there is none."""
    return torch.load(path, map_location=device, weights_only=True) if path.exists() else None
