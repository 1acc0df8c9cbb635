r"""Stage 4b, polish: the codec's decoder alone, against discriminators. The codes stay what they are, so the
language model may be trained at the same time, on another GPU.

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
from examples.train_voice.codec import Pieces, Speech, compile_activations
from examples.train_voice.discriminators import Judges, judges_loss, makers_losses
from examples.train_voice.parallel import Clock, Processes, learning_rate, replayed, restore, save
from examples.train_voice.settings import DEFAULT, Settings, read_settings
from examples.train_voice.spectral import MelDistance
from torch_ref.codecs.dac import Dac


class Contest:
    """A step of both sides: the decoder speaks, judges compare it with the real speech."""

    def __init__(self, dac: Dac, judges: Judges, settings: Settings):
        self.dac, self.judges, self.weights = dac, judges, settings.polish
        self.distance = MelDistance(dac.sample_rate).to(dac.decoder.conv2.weight.device)
        self.makers, self.panel = list(dac.decoder.parameters()), list(judges.parameters())

    @torch.no_grad()
    def latents(self, pieces: Pieces) -> Tensor:
        """Of the codebooks' own codes, and for half of the batch of the encoder's."""
        quantizer, half = self.dac.quantizer, len(pieces.samples) // 2
        heard = self.dac.encoder(pieces.samples[half:, None])
        return quantizer.decode(quantizer.encode(torch.cat((pieces.latents[:half], heard))))

    def __call__(self, pieces: Pieces) -> Tensor:
        """Fills the gradients of both. → judges' loss, adversarial loss, feature distance, mel distance."""
        weights = self.weights
        made = self.dac.decoder(self.latents(pieces))[:, 0]
        real, fake = halves(self.judges(torch.cat((pieces.samples, made))))
        judging = judges_loss(real, fake)
        adversarial, features = makers_losses(real, fake)
        mel = self.distance(made, pieces.samples)
        loss = (
            weights.mel_weight * mel
            + weights.adversarial_weight * adversarial
            + weights.feature_weight * features
        )
        found = torch.autograd.grad(judging, self.panel, retain_graph=True)
        found += torch.autograd.grad(loss, self.makers)
        for parameter, gradient in zip([*self.panel, *self.makers], found, strict=True):
            parameter.grad = gradient
        return torch.stack((judging, adversarial, features, mel)).detach()


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
    for frozen in (dac.encoder, dac.quantizer):
        frozen.requires_grad_(False)
    books = Codebooks.restored(told, settings.codec, device)
    seed = settings.seed + 500 + 1000 * processes.rank
    data = Speech(speech, settings.codec_training.shards, books, device, seed)
    cuda, betas = device.type == "cuda", (0.8, 0.99)
    if cuda:
        compile_activations(dac)
    contest = Contest(dac, judges, settings)
    maker_steps = torch.optim.AdamW(contest.makers, betas=betas, fused=cuda)
    judge_steps = torch.optim.AdamW(contest.panel, betas=betas, fused=cuda)
    step, spent = 0, 0.0
    if state is not None:
        judges.load_state_dict(state["judges"])
        maker_steps.load_state_dict(state["maker_steps"])
        judge_steps.load_state_dict(state["judge_steps"])
        step, spent = state["step"], state["spent"]
        data.generator.manual_seed(seed + step)
    pieces = data.draw(training.batch, training.frames)
    learned = [*contest.panel, *contest.makers]
    run = replayed(lambda: contest(pieces), learned) if cuda and not eager else lambda: contest(pieces)
    clock = Clock(processes, minutes, spent)
    saved = clock.spent

    def keep() -> None:
        save(
            out,
            {
                "dac": dac.state_dict(),
                "judges": judges.state_dict(),
                "maker_steps": maker_steps.state_dict(),
                "judge_steps": judge_steps.state_dict(),
                "step": step,
                "spent": clock.spent,
            },
        )

    while (progress := clock.look(step)) < 1:
        rate = learning_rate(training.learning_rate, training.warmup, step, progress)
        for group in (*maker_steps.param_groups, *judge_steps.param_groups):
            group["lr"] = rate
        for kept, drawn in zip(pieces, data.draw(training.batch, training.frames), strict=True):
            kept.copy_(drawn)
        parts = run()
        processes.average([p.grad for p in learned if p.grad is not None])
        nn.utils.clip_grad_norm_(contest.panel, 10.0)
        nn.utils.clip_grad_norm_(contest.makers, 10.0)
        judge_steps.step()
        maker_steps.step()
        step += 1
        if step % 200 == 0:
            judging, adversarial, features, mel = parts.tolist()
            processes.say(
                f"polish: step {step}, {clock.spent:.0f} s, mel {mel:.4f}, judges {judging:.3f}, "
                f"adversarial {adversarial:.3f}, features {features:.3f}"
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
