r"""Stage 4b, polish: the decoder against discriminators, the encoder on what it should hear. The codes
stay what they are, so the language model may be trained at the same time, on another GPU.

    python -m examples.train_voice.polish --speech work/speech --codebooks work/codebooks.pt \
        --codec work/codec.pt --out work/polished.pt --minutes 8
    torchrun --nproc-per-node=gpu -m examples.train_voice.polish ...     # on several GPUs
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor, nn

from examples.train_voice.codebooks import Codebooks
from examples.train_voice.codec import Hearing, Pieces, Speech, compile_activations
from examples.train_voice.discriminators import Judges, judges_loss, makers_losses
from examples.train_voice.parallel import Clock, Processes, learning_rate, replayed, restore, save
from examples.train_voice.settings import DEFAULT, Settings, read_settings
from examples.train_voice.spectral import MelDistance
from examples.train_voice.speech import shard_names
from torch_ref.codecs.dac import Dac

MORE = 0.2  # of the time: then all speech is read that there is by now


class Contest:
    """A step of all sides: the encoder hears, the decoder speaks, judges compare it with the real speech."""

    def __init__(self, dac: Dac, judges: Judges, settings: Settings):
        device = dac.decoder.conv2.weight.device
        self.dac, self.judges, self.weights = dac, judges, settings.polish
        self.distance, self.hearing = MelDistance(dac.sample_rate).to(device), Hearing(dac).to(device)
        self.hearers, self.makers = list(dac.encoder.parameters()), list(dac.decoder.parameters())
        self.panel = list(judges.parameters())

    @property
    def learned(self) -> list[nn.Parameter]:
        return [*self.panel, *self.makers, *self.hearers]

    @torch.no_grad()
    def latents(self, pieces: Pieces, heard: Tensor) -> Tensor:
        """Of the codebooks' own codes, and for half of the batch of the encoder's."""
        quantizer, half = self.dac.quantizer, len(heard) // 2
        return quantizer.decode(quantizer.encode(torch.cat((pieces.latents[:half], heard[half:]))))

    def __call__(self, pieces: Pieces) -> Tensor:
        """Fills the gradients of all. → judges' loss, adversarial loss, feature distance, mel distance, and
        the encoder's errors: spectrum, pitch, phase.
        """
        weights = self.weights
        heard = self.dac.encoder(pieces.samples[:, None])
        made = self.dac.decoder(self.latents(pieces, heard))[:, 0]
        real, fake = halves(self.judges(torch.cat((pieces.samples, made))))
        judging = judges_loss(real, fake)
        adversarial, features = makers_losses(real, fake)
        mel = self.distance(made, pieces.samples)
        loss = (
            weights.mel_weight * mel
            + weights.adversarial_weight * adversarial
            + weights.feature_weight * features
        )
        unheard, errors = self.hearing(heard, pieces.latents)
        found = torch.autograd.grad(judging, self.panel, retain_graph=True)
        found += torch.autograd.grad(loss, self.makers)
        found += torch.autograd.grad(unheard, self.hearers)
        for parameter, gradient in zip(self.learned, found, strict=True):
            parameter.grad = gradient
        return torch.cat((torch.stack((judging, adversarial, features, mel)).detach(), errors))


def train(
    settings: Settings,
    speech: Path,
    codebooks: Path,
    codec: Path,
    out: Path,
    minutes: float,
    processes: Processes,
    *,
    eager: bool = False,
) -> None:
    """Until the time is over; checkpoints every half minute, and goes on from one."""
    training, device = settings.polish, processes.device
    dac, judges = Dac(settings.codec).to(device), Judges().to(device)
    state, told = restore(out, device), restore(codebooks, device)
    start = state or restore(codec, device)
    if start is None or told is None:
        raise SystemExit(f"polish: there is no codec at {codec}, or no codebooks at {codebooks}")
    dac.load_state_dict(start["dac"])
    dac.quantizer.requires_grad_(False)
    books = Codebooks.restored(told, settings.codec, device)
    seed = settings.seed + 500 + 1000 * processes.rank
    data = Speech(speech, settings.codec_training.shards, books, device, seed)
    cuda, betas = device.type == "cuda", (0.8, 0.99)
    if cuda:
        compile_activations(dac)
    contest = Contest(dac, judges, settings)
    steps = {
        name: torch.optim.AdamW(learned, betas=betas, fused=cuda)
        for name, learned in (
            ("judges", contest.panel),
            ("makers", contest.makers),
            ("hearers", contest.hearers),
        )
    }
    rates = dict.fromkeys(steps, training.learning_rate) | {"hearers": training.encoder_learning_rate}
    step, spent = 0, 0.0
    if state is not None:
        judges.load_state_dict(state["judges"])
        for name, optimizer in steps.items():
            optimizer.load_state_dict(state["steps"][name])
        step, spent = state["step"], state["spent"]
        data.generator.manual_seed(seed + step)
    pieces = data.draw(training.batch, training.frames)
    learned = contest.learned
    run = replayed(lambda: contest(pieces), learned) if cuda and not eager else lambda: contest(pieces)
    clock, more = Clock(processes, minutes, spent), False
    saved = clock.spent

    def keep() -> None:
        save(
            out,
            {
                "dac": dac.state_dict(),
                "judges": judges.state_dict(),
                "steps": {name: optimizer.state_dict() for name, optimizer in steps.items()},
                "step": step,
                "spent": clock.spent,
            },
        )

    while (progress := clock.look(step)) < 1:
        if not more and progress > MORE:  # speech that has come since
            more = True
            shards = min(len(shard_names(speech)), training.shards)
            data = Speech(speech, shards, books, device, seed + step)
        for name, optimizer in steps.items():
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(rates[name], training.warmup, step, progress)
        for kept, drawn in zip(pieces, data.draw(training.batch, training.frames), strict=True):
            kept.copy_(drawn)
        parts = run()
        processes.average([p.grad for p in learned if p.grad is not None])
        for part in (contest.panel, contest.makers, contest.hearers):
            nn.utils.clip_grad_norm_(part, 10.0)
        for optimizer in steps.values():
            optimizer.step()
        step += 1
        if step % 200 == 0:
            judging, adversarial, features, mel, spectrum, pitch, phase = parts.tolist()
            processes.say(
                f"polish: step {step}, {clock.spent:.0f} s, mel {mel:.4f}, judges {judging:.3f}, "
                f"adversarial {adversarial:.3f}, features {features:.3f}, encoder: spectrum {spectrum:.3f}, "
                f"pitch {pitch:.3f}, phase {phase:.3f}"
            )
        if processes.first and clock.spent - saved > 30:
            keep()
            saved = clock.spent
    if processes.first:
        keep()
    processes.say(f"polish: {step} steps, {out}")


def halves(verdicts: list[list[Tensor]]) -> tuple[list[list[Tensor]], list[list[Tensor]]]:
    """Verdicts of a joined batch, as those of its first and of its second half."""
    first = [[x.chunk(2)[0] for x in verdict] for verdict in verdicts]
    return first, [[x.chunk(2)[1] for x in verdict] for verdict in verdicts]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--settings", type=Path, default=DEFAULT)
    parser.add_argument("--speech", type=Path, required=True)
    parser.add_argument("--codebooks", type=Path, required=True)
    parser.add_argument("--codec", type=Path, required=True, help="where to begin")
    parser.add_argument("--out", type=Path, required=True, help="checkpoint, written and gone on from")
    parser.add_argument("--minutes", type=float, required=True, help="of training in all")
    parser.add_argument("--eager", action="store_true", help="without a CUDA graph")
    given = parser.parse_args()
    settings = read_settings(given.settings)
    processes = Processes(settings.seed)
    train(
        settings,
        given.speech,
        given.codebooks,
        given.codec,
        given.out,
        given.minutes,
        processes,
        eager=given.eager,
    )
    processes.close()


if __name__ == "__main__":
    main()
