r"""Stage 3b, polish: the codec's decoder alone, against discriminators. The codes stay what they are, so the
language model may be trained at the same time, on another GPU.

    python -m examples.train_voice.polish --speech work/speech --codec work/codec.pt --out work/polished.pt \
        --minutes 8
    torchrun --nproc-per-node=gpu -m examples.train_voice.polish ...     # on several GPUs
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor, nn

from examples.train_voice.codec import Segments, compile_activations
from examples.train_voice.discriminators import Judges, judges_loss, makers_losses
from examples.train_voice.parallel import Clock, Processes, learning_rate, restore, save
from examples.train_voice.settings import DEFAULT, Settings, read_settings
from examples.train_voice.spectral import MelDistance
from torch_ref.codecs.dac import Dac, Decoder


class Voice(nn.Module):
    """The decoder: latents to samples. (B, C, T) → (B, L)."""

    def __init__(self, decoder: Decoder):
        super().__init__()
        self.decoder = decoder

    def forward(self, latents: Tensor) -> Tensor:
        return self.decoder(latents)[:, 0]


@torch.no_grad()
def latents_of(dac: Dac, samples: Tensor) -> Tensor:
    """What the decoder is given for samples (B, L)."""
    return dac.quantizer.decode(dac.quantizer.encode(dac.encoder(samples[:, None])))


def train(
    settings: Settings, speech: Path, codec: Path, out: Path, minutes: float, processes: Processes
) -> None:
    """Until the time is over; checkpoints every minute, and goes on from one."""
    training, device = settings.polish, processes.device
    dac, judges = Dac(settings.codec).to(device), Judges().to(device)
    state = restore(out, device)
    start = state or restore(codec, device)
    if start is None:
        raise SystemExit(f"polish: there is no codec at {codec}; train it first")
    dac.load_state_dict(start["dac"])
    for frozen in (dac.encoder, dac.quantizer):
        frozen.requires_grad_(False)
    data = Segments(
        speech,
        settings.codec_training.hours,
        dac.sample_rate,
        device,
        settings.seed + 500 + 1000 * processes.rank,
    )
    if device.type == "cuda":
        compile_activations(dac)
    distance = MelDistance(dac.sample_rate).to(device)
    fused, betas = device.type == "cuda", (0.8, 0.99)
    maker_steps = torch.optim.AdamW(dac.decoder.parameters(), betas=betas, fused=fused)
    judge_steps = torch.optim.AdamW(judges.parameters(), betas=betas, fused=fused)
    step, spent = 0, 0.0
    if state is not None:
        judges.load_state_dict(state["judges"])
        maker_steps.load_state_dict(state["maker_steps"])
        judge_steps.load_state_dict(state["judge_steps"])
        step, spent = state["step"], state["spent"]
        data.generator.manual_seed(settings.seed + 500 + step + 1000 * processes.rank)
    voice, panel = processes.wrap(Voice(dac.decoder)), processes.wrap(judges)
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
        samples = data.draw(training.batch, training.segment)
        made = voice(latents_of(dac, samples))

        judges.requires_grad_(True)
        both = panel(torch.cat((samples, made.detach())))
        real, fake = halves(both)
        judging = judges_loss(real, fake)
        judge_steps.zero_grad()
        judging.backward()
        nn.utils.clip_grad_norm_(judges.parameters(), 10.0)
        judge_steps.step()

        judges.requires_grad_(False)  # and not through `panel`: its gradients are not wanted here
        real, fake = halves(judges(torch.cat((samples, made))))
        adversarial, features = makers_losses(real, fake)
        mel = distance(made, samples)
        loss = (
            training.mel_weight * mel
            + training.adversarial_weight * adversarial
            + training.feature_weight * features
        )
        maker_steps.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(dac.decoder.parameters(), 10.0)
        if torch.isfinite(norm):
            maker_steps.step()
        step += 1
        if step % 200 == 0:
            processes.say(
                f"polish: step {step}, {clock.spent:.0f} s, mel {float(mel):.4f}, "
                f"judges {float(judging):.3f}, "
                f"adversarial {float(adversarial):.3f}, features {float(features):.3f}"
            )
        if processes.first and clock.spent - saved > 60:
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
    parser.add_argument("--codec", type=Path, required=True, help="where to begin")
    parser.add_argument("--out", type=Path, required=True, help="checkpoint, written and gone on from")
    parser.add_argument("--minutes", type=float, required=True, help="of training in all")
    given = parser.parse_args()
    settings = read_settings(given.settings)
    processes = Processes(settings.seed)
    train(settings, given.speech, given.codec, given.out, given.minutes, processes)
    processes.close()


if __name__ == "__main__":
    main()
