r"""Stage 4b, polish: train the decoder against discriminators, and continue the encoder's training.

The codes do not change, so the language model can be trained at the same time on another GPU.

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

MORE = 0.2  # share of the time at which new speech is read


class Contest:
    """Training step of encoder, decoder and discriminators."""

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
        """Decode the codebooks' codes for half of the batch, and the encoder's for the other half."""
        quantizer, half = self.dac.quantizer, len(heard) // 2
        return quantizer.decode(quantizer.encode(torch.cat((pieces.latents[:half], heard[half:]))))

    def __call__(self, pieces: Pieces) -> Tensor:
        """Compute all gradients.

        → discriminators' loss, adversarial loss, feature distance, mel distance, and the encoder's errors
        of spectrum, pitch and phase.
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
    """Train until the time is up, from OUT if it exists, with a checkpoint every half minute."""
    training, device = settings.polish, processes.device
    dac, judges = Dac(settings.codec).to(device), Judges().to(device)
    state, known = restore(out, device), restore(codebooks, device)
    start = state or restore(codec, device)
    if start is None or known is None:
        raise SystemExit(
            f"polish: no codec at {codec}, or no codebooks at {codebooks}; run stages 3 and 4 first"
        )
    dac.load_state_dict(start["dac"])
    dac.quantizer.requires_grad_(False)
    books = Codebooks.restored(known, settings.codec, device)
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

    def save_all() -> None:
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
        if not more and progress > MORE:  # read new speech
            more = True
            shards = min(len(shard_names(speech)), training.shards)
            data = Speech(speech, shards, books, device, seed + step)
        for name, optimizer in steps.items():
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(rates[name], training.warmup, step, progress)
        for held, drawn in zip(pieces, data.draw(training.batch, training.frames), strict=True):
            held.copy_(drawn)
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
            save_all()
            saved = clock.spent
    if processes.first:
        save_all()
    processes.say(f"polish: {step} steps, {out}")


def halves(verdicts: list[list[Tensor]]) -> tuple[list[list[Tensor]], list[list[Tensor]]]:
    """Split verdicts of a joined batch into those of its halves."""
    first = [[x.chunk(2)[0] for x in verdict] for verdict in verdicts]
    return first, [[x.chunk(2)[1] for x in verdict] for verdict in verdicts]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--settings", type=Path, default=DEFAULT)
    parser.add_argument("--speech", type=Path, required=True)
    parser.add_argument("--codebooks", type=Path, required=True)
    parser.add_argument("--codec", type=Path, required=True, help="checkpoint to start from")
    parser.add_argument("--out", type=Path, required=True, help="checkpoint to write, and to continue from")
    parser.add_argument("--minutes", type=float, required=True, help="minutes of training in total")
    parser.add_argument("--eager", action="store_true", help="do not use a CUDA graph")
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
