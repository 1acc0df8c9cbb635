"""The work of each of two processes in test_stopping.py; they find each other through a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from examples.finetune_dia import training
from examples.train_voice import codec, language_model, polish
from examples.train_voice.parallel import Processes
from tests.examples.counted import Counted

SEEN: list[Any] = []


def remembered(kind: type) -> type:
    """A class whose instances are also in SEEN."""

    class Remembered(kind):
        def __init__(self, *given: Any, **named: Any):
            super().__init__(*given, **named)
            SEEN.append(self)

    return Remembered


def train_as(rank: int, size: int, folder: Path, jobs: dict[str, Callable[[Processes], None]]) -> None:
    """Run every job as one process of several; write its weights and first gradients."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank)}
    torch.set_num_threads(1)
    start, average = dist.init_process_group, Processes.average
    where = {"init_method": f"file://{folder / 'meeting'}", "rank": rank, "world_size": size}
    dist.init_process_group = lambda backend, **_: start(backend, **where)
    processes, gradients = Processes(7), []

    def averaged(self: Processes, tensors: list[torch.Tensor]) -> None:
        own = torch.cat([tensor.flatten() for tensor in tensors])
        average(self, tensors)
        gradients.append((own, torch.cat([tensor.flatten() for tensor in tensors])))

    Processes.average = averaged
    training.Processes = lambda seed: processes
    training.Clock = codec.Clock = language_model.Clock = polish.Clock = Counted
    training.Training, codec.Reconstruction = remembered(training.Training), remembered(codec.Reconstruction)
    language_model.Steps, polish.Contest = remembered(language_model.Steps), remembered(polish.Contest)
    for name, job in jobs.items():
        SEEN.clear()
        gradients.clear()
        job(processes)
        weights = torch.cat([p.detach().flatten() for p in learned(SEEN[-1])])
        torch.save({"weights": weights, "gradients": gradients[0]}, folder / f"{name}-{rank}.pt")
    if dist.is_initialized():
        processes.close()


def learned(made: Any) -> Sequence[torch.Tensor]:
    """Weights that a stage's object trains."""
    if isinstance(made, training.Training):
        return list(made.learned.values())
    return list(made.parameters()) if isinstance(made, codec.Reconstruction) else made.learned
