"""Training loop of fine-tuning."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import torch_ref
from examples.finetune_dia.batches import collate, loss, order
from examples.finetune_dia.data import Recording, divided, encode, fingerprint, saved, transcripts
from examples.finetune_dia.data import save as keep
from examples.finetune_dia.lora import adapt, merge
from examples.train_voice.export import dia_config, generation_config, write
from examples.train_voice.parallel import Clock, Processes, learning_rate, restore, save
from torch_ref.dia.dia import Dia
from torch_ref.dia.pipeline import DiaPipeline
from tts_core.errors import GenerationError, UsageError
from tts_core.text.rules import FILE as RULES
from tts_core.text.rules import NO_RULES

WARMUP = 20  # steps
LARGEST_NORM = 1.0  # of the gradients, which are clipped
WEIGHT_DECAY = 0.01
SHOWN, SAVED = 20, 30  # steps between lines of progress, seconds between checkpoints
PEAKS = {"lora": 2e-3, "full": 3e-4}  # learning rates of a small model; use a tenth for a large one


@dataclass(frozen=True)
class Settings:
    """Settings of a run.

    lora: rank; None trains all weights.  minutes: of training in total.  batch: recordings per step.
    learning_rate: peak; None takes PEAKS'.
    """

    lora: int | None
    minutes: float
    batch: int
    learning_rate: float | None
    seed: int

    def check(self) -> None:
        """Raise UsageError for a value that is not above 0."""
        for name in ("lora", "minutes", "batch", "learning_rate"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UsageError(f"--{name.replace('_', '-')}: {value} must be above 0")

    @property
    def peak(self) -> float:
        return self.learning_rate or PEAKS["lora" if self.lora else "full"]


def finetune(model: str | Path, codec: str | Path | None, data: Path, out: Path, settings: Settings) -> None:
    """Train, and write OUT/dia. Continues from OUT/checkpoint.pt.

    Raises the errors of `torch_ref.load` and of the data, and GenerationError if training diverges.
    """
    settings.check()
    processes = Processes(settings.seed)
    if processes.device.type == "cuda":  # batches rarely share a shape, so cuDNN's plans do not pay
        torch.backends.cudnn.benchmark = False
        torch.backends.cuda.enable_cudnn_sdp(False)
    pipeline = torch_ref.load(model, codec=codec, dtype="float32", device=str(processes.device))
    if not isinstance(pipeline, DiaPipeline):
        raise UsageError(f"--model: {model} is not a Dia; only Dia can be fine-tuned")
    network, config = pipeline.engine.network, pipeline.config
    said = transcripts(data, config)
    begun = {"data": fingerprint(said), "lora": settings.lora, "model": fingerprint_of(network)}
    checkpoint = out / "checkpoint.pt"
    state = restore(checkpoint, processes.device)
    if state is not None and state["begun"] != begun:
        changed = ", ".join(name for name, value in begun.items() if state["begun"].get(name) != value)
        raise UsageError(f"--out: {out} contains a run with another {changed}; give another folder")
    out.mkdir(parents=True, exist_ok=True)
    training, unseen = divided(encoded(out, said, pipeline, processes))
    network.train().requires_grad_()
    if settings.lora:
        adapt(network, settings.lora)
    Training(network, training, unseen, settings, processes).run(checkpoint, state, begun)
    if processes.first:
        if settings.lora:
            merge(network)
        if config.own_speakers:  # other ones now
            config = replace(config, own_speakers=("a fine-tuned voice",) * 2)
        configs = {"config.json": dia_config(config), "generation_config.json": generation_config(config)}
        if pipeline.rules != NO_RULES:
            configs[RULES] = pipeline.rules.to_dict()
        size = write(out / "dia", network.state_dict(), configs)
        print(f"fine-tuning: {out / 'dia'}, {size:,} bytes", flush=True)
    processes.close()


def fingerprint_of(network: Dia) -> float:
    """Sum of absolute weights, which identifies a model in practice."""
    return float(sum(p.detach().double().abs().sum() for p in network.parameters()))


def encoded(out: Path, said: dict[Path, str], pipeline: DiaPipeline, processes: Processes) -> list[Recording]:
    """Encode the recordings once, in the first process; return them in every process."""
    path = out / f"codes-{fingerprint(said)}.npz"
    if processes.first and not path.exists():
        made = []
        for item in encode(said, pipeline.engine.codec, pipeline.config):
            made.append(item)
            if len(made) % 100 == 0:
                processes.say(f"fine-tuning: {len(made)} of {len(said)} recordings encoded")
        keep(path, made)
    if processes.size > 1:
        torch.distributed.barrier()
    return saved(path)


class Training:
    """Steps over the recordings until the time is up."""

    def __init__(
        self,
        network: Dia,
        recordings: list[Recording],
        unseen: list[Recording],
        settings: Settings,
        processes: Processes,
    ):
        self.network, self.recordings, self.unseen = network, recordings, unseen
        self.settings, self.processes = settings, processes
        named = {name: p for name, p in network.named_parameters() if p.requires_grad}
        self.learned = named
        self.optimizer = torch.optim.AdamW(
            named.values(), lr=settings.peak, betas=(0.9, 0.95), weight_decay=WEIGHT_DECAY
        )
        self.step, self.order, self.epoch = 0, [], -1

    def batch(self) -> list[Recording]:
        """Choose the recordings of this step; passes follow each other, determined by the seed."""
        size = self.settings.batch * self.processes.size
        epoch, index = divmod(self.step, math.ceil(len(self.recordings) / size))
        if epoch != self.epoch:
            rng = np.random.default_rng((self.settings.seed, epoch))
            self.order, self.epoch = (
                order([len(recording.codes) for recording in self.recordings], size, rng),
                epoch,
            )
        own = self.order[index][self.processes.rank :: self.processes.size]
        return [self.recordings[n] for n in own or self.order[index][:1]]

    def run(self, checkpoint: Path, state: dict[str, Any] | None, begun: dict[str, Any]) -> None:
        """Train the network in place until the time is up."""
        spent = 0.0
        if state is not None:
            for name, value in state["learned"].items():
                self.learned[name].data.copy_(value)
            self.optimizer.load_state_dict(state["optimizer"])
            self.step, spent = state["step"], state["spent"]
        count, say = sum(p.numel() for p in self.learned.values()), self.processes.say
        say(f"fine-tuning: {count:,} weights on {len(self.recordings)} recordings, from step {self.step}")
        say(f"fine-tuning: unseen {self.judged():.3f} before")
        clock = Clock(self.processes, self.settings.minutes, spent)
        saved = clock.spent

        def hold() -> None:
            weights = {name: p.detach() for name, p in self.learned.items()}
            state = {"learned": weights, "optimizer": self.optimizer.state_dict(), "begun": begun}
            save(checkpoint, {**state, "step": self.step, "spent": clock.spent})

        while (progress := clock.look(self.step)) < 1:
            value = self.stepped(progress)
            if self.step % SHOWN == 0:
                say(
                    f"fine-tuning: step {self.step}, {clock.spent:.0f} s, training {value:.3f}, "
                    f"unseen {self.judged():.3f}"
                )
            if self.processes.first and clock.spent - saved > SAVED:
                hold()
                saved = clock.spent
        if self.processes.first:
            hold()
        say(f"fine-tuning: {self.step} steps, unseen {self.judged():.3f}")

    def stepped(self, progress: float) -> float:
        """Run one step. Returns its loss in nats."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.settings.peak, WARMUP, self.step, progress)
        rng = np.random.default_rng((self.settings.seed, self.step, self.processes.rank))
        self.optimizer.zero_grad()
        value = loss(self.network, collate(self.batch(), self.network.config, rng, self.processes.device))
        value.backward()
        gradients = [p.grad for p in self.learned.values() if p.grad is not None]
        self.processes.average(gradients)
        nn.utils.clip_grad_norm_(self.learned.values(), LARGEST_NORM)
        if not math.isfinite(value.item()):
            raise GenerationError(
                f"training: the loss is {value.item()} at step {self.step}; give a lower --learning-rate"
            )
        self.optimizer.step()
        self.step += 1
        return value.item()

    @torch.no_grad()
    def judged(self) -> float:
        """Loss on the held-out recordings, in nats."""
        rng, device = np.random.default_rng(0), self.processes.device
        config = self.network.config
        batch = collate(self.unseen, config, rng, device, text_dropout=0.0, code_noise=0.0)
        return float(loss(self.network, batch))
