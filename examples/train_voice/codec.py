"""Stage 3, codec: DAC on spectral distances alone. It settles the codes; `polish` improves the sound after.

python -m examples.train_voice.codec --speech work/speech --out work/codec.pt --minutes 8
torchrun --nproc-per-node=gpu -m examples.train_voice.codec ...      # on several GPUs
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor, nn

from examples.train_voice.parallel import Clock, Processes, learning_rate, restore, save
from examples.train_voice.quantizing import restart, straight_through
from examples.train_voice.settings import DEFAULT, CodecTraining, Settings, read_settings
from examples.train_voice.spectral import MelDistance
from examples.train_voice.speech import joined, wait_for_speech
from torch_ref.codecs.dac import Dac, Snake1d

RESTART_SEGMENTS = 256


class Segments:
    """Random pieces of all speech, on the device."""

    def __init__(self, speech: Path, hours: float, sample_rate: int, device: torch.device, seed: int):
        samples = joined(speech, wait_for_speech(speech, hours * 3600, sample_rate))
        self.samples = torch.from_numpy(samples).to(device)
        self.hours = len(samples) / sample_rate / 3600
        self.generator = torch.Generator(device).manual_seed(seed)

    def draw(self, count: int, length: int) -> Tensor:
        """(count, length) float32, each at a loudness of its own."""
        device = self.samples.device
        starts = torch.randint(
            len(self.samples) - length, (count, 1), generator=self.generator, device=device
        )
        gain = 0.6 + 0.6 * torch.rand(count, 1, generator=self.generator, device=device)
        pieces = self.samples[starts + torch.arange(length, device=device)].float() / 32768
        return (pieces * gain).clamp(-1, 1)


class Reconstruction(nn.Module):
    """The codec with its losses: samples in, one scalar and its parts out."""

    def __init__(self, dac: Dac, training: CodecTraining):
        super().__init__()
        self.dac, self.training_settings = dac, training
        self.distance = MelDistance(dac.sample_rate)

    def forward(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        """(B, L) → loss, (mel, wave, commitment)."""
        weights = self.training_settings
        quantized = straight_through(self.dac.quantizer, self.dac.encoder(samples[:, None]))
        made = self.dac.decoder(quantized.latents)[:, 0]
        mel, wave = self.distance(made, samples), (made - samples).abs().mean()
        loss = (
            weights.mel_weight * mel
            + weights.wave_weight * wave
            + weights.codebook_weight * quantized.codebook
            + weights.commitment_weight * quantized.commitment
        )
        return loss, torch.stack((mel, wave, quantized.commitment)).detach()


def compile_activations(network: nn.Module) -> None:
    """One kernel for each snake, forwards and back, instead of ten."""
    for module in network.modules():
        if isinstance(module, Snake1d):
            module.compile(dynamic=True)


def train(settings: Settings, speech: Path, out: Path, minutes: float, processes: Processes) -> None:
    """Until the time is over; checkpoints every minute, and goes on from one."""
    training = settings.codec_training
    dac = Dac(settings.codec).to(processes.device)
    state = restore(out, processes.device)
    data = Segments(
        speech, training.hours, dac.sample_rate, processes.device, settings.seed + 1000 * processes.rank
    )
    processes.say(f"codec: {sum(p.numel() for p in dac.parameters()):,} parameters, {data.hours:.1f} h")
    step, spent = 0, 0.0
    if state is None:
        restart(dac, data.draw(RESTART_SEGMENTS, training.segment), everything=True)
        processes.share([p.data for p in dac.parameters()])
    else:
        dac.load_state_dict(state["dac"])
        step, spent = state["step"], state["spent"]
        data.generator.manual_seed(settings.seed + step + 1000 * processes.rank)
    if processes.device.type == "cuda":
        compile_activations(dac)
    model = processes.wrap(Reconstruction(dac, training).to(processes.device))
    optimizer = torch.optim.AdamW(
        dac.parameters(), betas=(0.8, 0.99), weight_decay=0.01, fused=processes.device.type == "cuda"
    )
    if state is not None and "optimizer" in state:
        optimizer.load_state_dict(state["optimizer"])
    clock, used = Clock(processes, minutes, spent), []
    saved = clock.spent

    def keep() -> None:
        save(
            out,
            {
                "dac": dac.state_dict(),
                "optimizer": optimizer.state_dict(),
                "step": step,
                "spent": clock.spent,
            },
        )

    while (progress := clock.look(step)) < 1:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(training.learning_rate, training.warmup, step, progress)
        loss, parts = model(data.draw(training.batch, training.segment))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(dac.parameters(), 3.0)
        optimizer.step()
        step += 1
        if step % training.revive_every == 0 and progress < 0.5:
            used = restart(dac, data.draw(RESTART_SEGMENTS, training.segment))
            processes.share([one.codebook.weight.data for one in dac.quantizer.quantizers])  # type: ignore
        if step % 200 == 0:
            mel, wave, commitment = parts.tolist()
            processes.say(
                f"codec: step {step}, {clock.spent:.0f} s, mel {mel:.4f}, wave {wave:.4f}, "
                f"commitment {commitment:.3f}, entries in use {used}"
            )
        if processes.first and clock.spent - saved > 60:
            keep()
            saved = clock.spent
    if processes.first:
        keep()
    processes.say(f"codec: {step} steps, {out}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--settings", type=Path, default=DEFAULT)
    parser.add_argument("--speech", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="checkpoint, written and gone on from")
    parser.add_argument("--minutes", type=float, required=True, help="of training in all")
    given = parser.parse_args()
    settings = read_settings(given.settings)
    processes = Processes(settings.seed)
    train(settings, given.speech, given.out, given.minutes, processes)
    processes.close()


if __name__ == "__main__":
    main()
