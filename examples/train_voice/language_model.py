"""Stage 6, language model: train a Dia from scratch on text and codes.

    python -m examples.train_voice.language_model --codes work/codes --out work/dia.pt --minutes 10
    torchrun --nproc-per-node=gpu -m examples.train_voice.language_model ...   # on several GPUs

The checkpoint contains the weights, their moving average, which `export` takes, and the optimizer.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from examples.train_voice.dialogues import Batch, Corpus, stream, validation_batch
from examples.train_voice.parallel import Clock, Processes, learning_rate, replayed, restore, save
from examples.train_voice.settings import DEFAULT, Settings, read_settings
from examples.train_voice.speech import wait_for_shards
from examples.train_voice.teacher import Losses, Teacher
from torch_ref.dia.dia import Dia

MORE = (0.05, 0.15, 0.3, 0.5)  # shares of the time at which new shards are read
LARGEST_NORM = 1.0  # of the gradients, which are clipped


def initialize(network: Dia) -> None:
    """Draw small normal weights; those of residual branches are smaller in deeper networks."""
    depth = len(network.model.encoder.layers) + len(network.model.decoder.layers)
    for name, weight in network.named_parameters():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            nn.init.normal_(weight, std=0.02 / math.sqrt(2 * depth))
        elif weight.dim() > 1:
            nn.init.normal_(weight, std=0.05 if "embed" in name else 0.02)


def groups(teacher: Teacher, weight_decay: float) -> list[dict]:
    """Split the parameters into groups: matrices with weight decay, vectors without."""
    matrices = [p for p in teacher.parameters() if p.dim() > 1]
    vectors = [p for p in teacher.parameters() if p.dim() <= 1]
    return [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]


class Steps:
    """Forward and backward passes of a teacher, captured once per shape of batch."""

    def __init__(self, teacher: Teacher, guide_weight: float, *, captured: bool):
        self.teacher, self.captured = teacher, captured
        self.learned = list(teacher.parameters())
        self.guide_weight = guide_weight
        self.known: dict[tuple[int, ...], tuple[Batch, Callable[[], Losses]]] = {}

    def __call__(self, batch: Batch) -> Losses:
        """Compute the losses, and the clipped gradients of the parameters."""
        if not self.captured:
            self.teacher.zero_grad()
            return self.both_ways(batch)
        shape = (*batch.ids.shape, *batch.codes.shape)
        if shape not in self.known:
            self.known[shape] = batch, replayed(lambda: self.both_ways(batch), self.learned)
        stored, run = self.known[shape]
        if stored is not batch:
            for held, new in zip(stored, batch, strict=True):
                held.copy_(new)
        return run()

    def both_ways(self, batch: Batch) -> Losses:
        losses = self.teacher(batch, self.guide_weight)
        losses.total.backward()
        gradients = [parameter.grad for parameter in self.learned if parameter.grad is not None]
        norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
        scale = (LARGEST_NORM / norm).clamp_max(1.0)
        for gradient in gradients:  # zero if the batch overflowed
            gradient.copy_(torch.where(norm.isfinite(), gradient * scale, 0.0))
        return losses


def train(
    settings: Settings,
    codes: Path,
    out: Path,
    minutes: float,
    workers: int,
    processes: Processes,
    *,
    peak: float | None = None,
    eager: bool = False,
) -> None:
    """Train until the time is up, from OUT if it exists, with a checkpoint every half minute."""
    training, device = settings.language_training, processes.device
    peak = peak or training.learning_rate
    network = Dia(settings.dia)
    initialize(network)
    network.to(device)
    state = restore(out, device)
    if state is not None:
        network.load_state_dict(state["dia"])
    names = [name for name, _ in network.named_parameters()]
    weights: list[Tensor] = list(network.parameters())
    average = [p.detach().clone() for p in weights]
    cuda, teacher = device.type == "cuda", Teacher(network).to(device)
    learned = list(teacher.parameters())
    processes.share([p.data for p in learned])
    optimizer = torch.optim.AdamW(groups(teacher, training.weight_decay), betas=(0.9, 0.95), fused=cuda)
    step, spent = 0, 0.0
    if state is not None:
        for held, name in zip(average, names, strict=True):
            held.copy_(state["average"][name])
        teacher.load_state_dict(state.get("heads", {}), strict=False)
        if "optimizer" in state:
            optimizer.load_state_dict(state["optimizer"])
        step, spent = state["step"], state["spent"]
    wait_for_shards(codes, training.shards)
    corpus = Corpus(codes)
    hours = len(corpus.codes) / settings.codec.frame_rate / 3600
    size = sum(p.numel() for p in weights)
    processes.say(f"language model: {size:,} parameters, {len(corpus.texts):,} sentences, {hours:.1f} h")
    check = validation_batch(corpus, settings.dia, training, 64).to(device)
    steps = Steps(teacher, training.guide_weight, captured=cuda and not eager)

    def batches(single: bool) -> Iterator[Batch]:
        seed = settings.seed + 7919 * processes.rank + step
        return stream(corpus, settings.dia, training, single=single, seed=seed, workers=workers)

    def save_all() -> None:
        heads = {name: p for name, p in teacher.state_dict().items() if not name.startswith("network")}
        weights = {"dia": network.state_dict(), "average": dict(zip(names, average, strict=True))}
        state = {**weights, "heads": heads}
        save(out, {**state, "optimizer": optimizer.state_dict(), "step": step, "spent": clock.spent})

    clock = Clock(processes, minutes, spent)
    saved = clock.spent
    stage = None
    while (progress := clock.look(step)) < 1:
        single = progress < training.short_first
        if stage != (stage := (single, sum(progress >= begin for begin in MORE))):
            if stage[1]:
                corpus = Corpus(codes)  # with new shards
                processes.say(f"language model: {len(corpus.texts):,} sentences")
            source = batches(single)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(peak, training.warmup, step, progress)
        losses = steps(next(source).to(device))
        processes.average([p.grad for p in learned if p.grad is not None])
        optimizer.step()
        step += 1
        decay = min(training.average, (1 + step) / (10 + step))
        get_ema_multi_avg_fn(decay)(average, weights, step)
        if step % 250 == 0 and processes.first:
            with torch.no_grad():
                unseen = teacher(check, 0.0)
            shown, phones = (
                " ".join(f"{value:.2f}" for value in values.tolist())
                for values in (unseen.channels, unseen.phones)
            )
            processes.say(
                f"language model: step {step}, {clock.spent:.0f} s, training {losses.total.item():.3f}, "
                f"unseen {shown}, phones {phones}, attention on the text {float(unseen.guide):.2f}"
            )
        if processes.first and clock.spent - saved > 30:
            save_all()
            saved = clock.spent
    if processes.first:
        save_all()
    processes.say(f"language model: {step} steps, {out}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--settings", type=Path, default=DEFAULT)
    parser.add_argument("--codes", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="checkpoint to write, and to continue from")
    parser.add_argument("--minutes", type=float, required=True, help="minutes of training in total")
    parser.add_argument("--workers", type=int, default=8, help="processes per GPU that prepare batches")
    parser.add_argument(
        "--learning-rate", type=float, help="instead of the settings', to continue from a voice"
    )
    parser.add_argument("--eager", action="store_true", help="do not use CUDA graphs")
    given = parser.parse_args()
    settings = read_settings(given.settings)
    processes = Processes(settings.seed)
    train(
        settings,
        given.codes,
        given.out,
        given.minutes,
        given.workers,
        processes,
        peak=given.learning_rate,
        eager=given.eager,
    )
    processes.close()


if __name__ == "__main__":
    main()
