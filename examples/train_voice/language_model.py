"""Stage 5, language model: Dia, from nothing, on text and codes.

    python -m examples.train_voice.language_model --codes work/codes --out work/dia.pt --minutes 10
    torchrun --nproc-per-node=gpu -m examples.train_voice.language_model ...   # on several GPUs

The checkpoint holds the weights, their moving average (what `export` takes) and the optimizer.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import torch
from torch import nn

from examples.train_voice.dialogues import Corpus, stream, validation_batch
from examples.train_voice.parallel import Clock, Processes, learning_rate, restore, save
from examples.train_voice.settings import DEFAULT, Settings, read_settings
from examples.train_voice.teacher import Teacher
from torch_ref.dia.dia import Dia

MORE = 0.5  # of the time: then, and when dialogues begin, all shards are read that are there by now


def initialise(network: Dia) -> None:
    """Small normal weights; what is added to the residual stream is smaller the deeper the network."""
    depth = len(network.model.encoder.layers) + len(network.model.decoder.layers)
    for name, weight in network.named_parameters():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            nn.init.normal_(weight, std=0.02 / math.sqrt(2 * depth))
        elif weight.dim() > 1:
            nn.init.normal_(weight, std=0.05 if "embed" in name else 0.02)


def groups(network: Dia, weight_decay: float) -> list[dict]:
    """Norms are not decayed."""
    matrices = [p for p in network.parameters() if p.dim() > 1]
    vectors = [p for p in network.parameters() if p.dim() <= 1]
    return [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]


def train(
    settings: Settings, codes: Path, out: Path, minutes: float, workers: int, processes: Processes
) -> None:
    """Until the time is over; checkpoints every minute, and goes on from one."""
    training, device = settings.language_training, processes.device
    network = Dia(settings.dia)
    initialise(network)
    network.to(device)
    average = [p.detach().clone() for p in network.parameters()]
    optimizer = torch.optim.AdamW(
        groups(network, training.weight_decay), betas=(0.9, 0.95), fused=device.type == "cuda"
    )
    step, spent = 0, 0.0
    state = restore(out, device)
    if state is not None:
        network.load_state_dict(state["dia"])
        for kept, value in zip(average, state["average"].values(), strict=True):
            kept.copy_(value)
        if "optimizer" in state:
            optimizer.load_state_dict(state["optimizer"])
        step, spent = state["step"], state["spent"]
    corpus = Corpus(codes)
    hours = len(corpus.codes) / settings.codec.frame_rate / 3600
    size = sum(p.numel() for p in network.parameters())
    processes.say(f"language model: {size:,} parameters, {len(corpus.texts):,} sentences, {hours:.1f} h")
    check = validation_batch(corpus, settings.dia, training, 64).to(device)
    teacher = Teacher(network, training.text_dropout).to(device)
    model = processes.wrap(teacher)
    torch.manual_seed(settings.seed + 1000 * processes.rank + step)  # text dropout differs between processes

    def batches(alone: bool):
        seed = settings.seed + 7919 * processes.rank + step
        return stream(corpus, settings.dia, training, alone=alone, seed=seed, workers=workers)

    def keep() -> None:
        names = [name for name, _ in network.named_parameters()]
        state = {"dia": network.state_dict(), "average": dict(zip(names, average, strict=True))}
        save(out, {**state, "optimizer": optimizer.state_dict(), "step": step, "spent": clock.spent})

    clock = Clock(processes, minutes, spent)
    saved = clock.spent
    stage = None
    while (progress := clock.look(step)) < 1:
        if stage != (stage := sum(progress >= begin for begin in (training.short_first, MORE))):
            if step:
                corpus = Corpus(codes)  # with what has come since
            source = batches(alone=stage == 0)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(training.learning_rate, training.warmup, step, progress)
        guide_weight = training.guide_weight * max(0.0, 1 - progress / (2 * training.short_first))
        losses = model(next(source).to(device), guide_weight)
        optimizer.zero_grad()
        losses.total.backward()
        norm = nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        for parameter in network.parameters():  # a batch that overflows teaches nothing
            if parameter.grad is not None:
                parameter.grad = torch.where(norm.isfinite(), parameter.grad, torch.zeros_like(norm))
        optimizer.step()
        step += 1
        decay = min(training.average, (1 + step) / (10 + step))
        with torch.no_grad():
            for kept, value in zip(average, network.parameters(), strict=True):
                kept.lerp_(value, 1 - decay)
        if step % 250 == 0 and processes.first:
            teacher.training = False
            with torch.no_grad():
                unseen = teacher(check, 1e-9)
            teacher.training = True
            shown = " ".join(f"{value:.2f}" for value in unseen.channels.tolist())
            processes.say(
                f"language model: step {step}, {clock.spent:.0f} s, training {losses.total.item():.3f}, "
                f"unseen {shown}, off the diagonal {float(unseen.guide):.2f}"
            )
        if processes.first and clock.spent - saved > 60:
            keep()
            saved = clock.spent
    if processes.first:
        keep()
    processes.say(f"language model: {step} steps, {out}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--settings", type=Path, default=DEFAULT)
    parser.add_argument("--codes", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="checkpoint, written and gone on from")
    parser.add_argument("--minutes", type=float, required=True, help="of training in all")
    parser.add_argument("--workers", type=int, default=8, help="processes that prepare batches, for each GPU")
    given = parser.parse_args()
    settings = read_settings(given.settings)
    processes = Processes(settings.seed)
    train(settings, given.codes, given.out, given.minutes, given.workers, processes)
    processes.close()


if __name__ == "__main__":
    main()
