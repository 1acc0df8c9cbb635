"""Stage 3, codec: DAC on spectral and waveform distances. It settles the codes; `polish` follows.

python -m examples.train_voice.codec --speech work/speech --out work/codec.pt --minutes 8
torchrun --nproc-per-node=gpu -m examples.train_voice.codec ...      # on several GPUs
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor, nn

from examples.train_voice.parallel import Clock, Processes, learning_rate, replayed, restore, save
from examples.train_voice.quantizing import Entries, Quantized, settle, straight_through
from examples.train_voice.settings import DEFAULT, CodecTraining, Settings, read_settings
from examples.train_voice.spectral import MelDistance
from examples.train_voice.speech import joined, wait_for_speech
from torch_ref.codecs.dac import Dac, Snake1d
from torch_ref.layers.conv import Conv1d, ConvTranspose1d

SETTLING_SEGMENTS = 512
FACTORS = {"encoder.conv1": 10.0, "decoder.conv2": 0.02}  # samples are small


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

    def forward(self, samples: Tensor, strength: Tensor) -> tuple[Tensor, Tensor, Quantized]:
        """(B, L), 0 or 1 → loss, (mel, wave, commitment), what was quantised."""
        weights = self.training_settings
        quantized = straight_through(self.dac.quantizer, self.dac.encoder(samples[:, None]), strength)
        made = self.dac.decoder(quantized.latents)[:, 0]
        mel, wave = self.distance(made, samples), (made - samples).abs().mean()
        loss = (
            weights.mel_weight * mel
            + weights.wave_weight * wave
            + weights.commitment_weight * quantized.commitment
        )
        return loss, torch.stack((mel, wave, quantized.commitment)).detach(), quantized


@torch.no_grad()
def initialise(dac: Dac) -> None:
    """Weights that keep a signal's size on its way, so that training begins at once."""
    for name, module in dac.named_modules():
        if isinstance(module, Conv1d):
            std = (module.weight.shape[1] * module.weight.shape[2]) ** -0.5
        elif isinstance(module, ConvTranspose1d):
            std = (2 * module.weight.shape[0]) ** -0.5  # two taps reach each sample
        else:
            continue
        factor = 0.3 if "res_unit" in name and name.endswith("conv2") else FACTORS.get(name, 1.0)
        nn.init.normal_(module.weight, std=factor * std)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


def snake(x: Tensor, alpha: Tensor) -> Tensor:
    """Snake1d with its alpha as (C,)."""
    a = alpha[:, None]
    return x + (a + 1e-9).reciprocal() * torch.sin(a * x).square()


def compile_activations(network: nn.Module) -> None:
    """One kernel for all snakes, forwards and back, instead of ten for each."""
    compiled = torch.compile(snake, dynamic=True)
    for module in network.modules():
        if isinstance(module, Snake1d):
            # a view: parameters themselves would be compiled for, one by one
            module.forward = lambda x, module=module: compiled(x, module.alpha.flatten())  # type: ignore


def train(
    settings: Settings, speech: Path, out: Path, minutes: float, processes: Processes, *, eager: bool = False
) -> None:
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
        initialise(dac)
        processes.share([p.data for p in dac.parameters()])
    else:
        dac.load_state_dict(state["dac"])
        step, spent = state["step"], state["spent"]
        data.generator.manual_seed(settings.seed + step + 1000 * processes.rank)
    cuda = processes.device.type == "cuda"
    if cuda:
        compile_activations(dac)
    for one in dac.quantizer.quantizers:
        one.codebook.requires_grad_(False)  # type: ignore[union-attr]
    learned = [p for p in dac.parameters() if p.requires_grad]
    model = Reconstruction(dac, training).to(processes.device)
    optimizer = torch.optim.AdamW(learned, betas=(0.8, 0.99), weight_decay=0.01, fused=cuda)
    if state is not None and "optimizer" in state:
        optimizer.load_state_dict(state["optimizer"])
    entries = Entries(dac.quantizer, training.decay)
    if state is not None and "tallies" in state:
        entries.tallies.copy_(state["tallies"])
    strength = torch.full((), float(state is not None), device=processes.device)
    samples = data.draw(training.batch, training.segment)

    def both_ways() -> tuple[Tensor, Quantized]:
        loss, parts, quantized = model(samples, strength)
        loss.backward()
        return parts, quantized

    graph = cuda and not eager
    run = replayed(both_ways, learned) if graph else both_ways
    clock, used = Clock(processes, minutes, spent), torch.zeros(dac.n_codebooks)
    saved = clock.spent

    def keep() -> None:
        weights = {"dac": dac.state_dict(), "optimizer": optimizer.state_dict(), "tallies": entries.tallies}
        save(out, {**weights, "step": step, "spent": clock.spent})

    while (progress := clock.look(step)) < 1:
        if step == training.settle and state is None:
            settle(dac, data.draw(SETTLING_SEGMENTS, training.segment))
            processes.share([p.data for p in dac.quantizer.parameters()])
            entries = Entries(dac.quantizer, training.decay)
            for parameter in dac.quantizer.parameters():
                optimizer.state.pop(parameter, None)
            strength.fill_(1.0)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(training.learning_rate, training.warmup, step, progress)
        samples.copy_(data.draw(training.batch, training.segment))
        if not graph:
            optimizer.zero_grad()
        parts, quantized = run()
        processes.average([p.grad for p in learned if p.grad is not None])
        nn.utils.clip_grad_norm_(learned, 3.0)
        optimizer.step()
        step += 1
        if step > training.settle:
            processes.average([quantized.tallies])
            entries.follow(quantized.tallies)
            if step % training.restart_every == 0 and progress < 0.5:
                used = entries.restart(quantized.encodings)
                processes.share([entries.tallies, *entries.weights])
        if step % 200 == 0:
            mel, wave, commitment = parts.tolist()
            processes.say(
                f"codec: step {step}, {clock.spent:.0f} s, mel {mel:.4f}, wave {wave:.4f}, "
                f"commitment {commitment:.3f}, entries in use {used.tolist()}"
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
    parser.add_argument("--eager", action="store_true", help="without a CUDA graph")
    given = parser.parse_args()
    settings = read_settings(given.settings)
    processes = Processes(settings.seed)
    train(settings, given.speech, given.out, given.minutes, processes, eager=given.eager)
    processes.close()


if __name__ == "__main__":
    main()
