r"""Stage 4, codec: train a DAC around the codebooks.

The encoder learns to compute the features from samples, the decoder to generate speech from their codes, with
spectral and waveform distances.

    python -m examples.train_voice.codec --speech work/speech --codebooks work/codebooks.pt \
        --out work/codec.pt --minutes 8
    torchrun --nproc-per-node=gpu -m examples.train_voice.codec ...      # on several GPUs

The codes are those of flite's parameters, so stages 5 and 6 can run at the same time.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from examples.train_voice.codebooks import Codebooks, groups
from examples.train_voice.parallel import Clock, Processes, learning_rate, replayed, restore, save
from examples.train_voice.settings import DEFAULT, CodecTraining, Settings, read_settings
from examples.train_voice.spectral import MelDistance
from examples.train_voice.speech import concatenated, wait_for_shards
from torch_ref.codecs.dac import Dac, Snake1d, VectorQuantizer
from torch_ref.layers.conv import Conv1d, ConvTranspose1d

FACTORS = {"encoder.conv1": 10.0, "decoder.conv2": 0.02}  # of initial weights: samples are small
PITCH_WEIGHT, PHASE_WEIGHT = 4.0, 1.0  # of the encoder's errors; the spectrum has 1


class Pieces(NamedTuple):
    """Batch of segments. samples: (B, 480 T).  latents: (B, C, T), of the codebooks."""

    samples: Tensor
    latents: Tensor


class Speech:
    """Source of random segments of whole frames, on the device."""

    def __init__(self, folder: Path, shards: int, books: Codebooks, device: torch.device, seed: int):
        names = wait_for_shards(folder, shards)
        self.samples = torch.from_numpy(concatenated(folder, names, "samples")).to(device)  # (T, 480)
        self.features = torch.from_numpy(concatenated(folder, names, "features")).to(device)
        self.books = books
        self.generator = torch.Generator(device).manual_seed(seed)

    def draw(self, count: int, frames: int) -> Pieces:
        device = self.samples.device
        starts = torch.randint(
            len(self.samples) - frames, (count, 1), generator=self.generator, device=device
        )
        rows = starts + torch.arange(frames, device=device)
        samples = self.samples[rows].float().flatten(1) / 32768
        return Pieces(samples, self.books.latents(self.features[rows]).transpose(1, 2))


class Losses(NamedTuple):
    """Losses of a step.

    total: to be minimized.  parts: mel, wave, spectrum, pitch and phase distance.  agreed: (Q,) share of the
    encoder's codes that equal the codebooks'.
    """

    total: Tensor
    parts: Tensor
    agreed: Tensor


class Hearing(nn.Module):
    """Distance of the encoder's latents from the codebooks'."""

    def __init__(self, dac: Dac):
        super().__init__()
        self.where = groups(dac.config.codebook_dim[0] - 2)
        first = cast(VectorQuantizer, dac.quantizer.quantizers[0])
        unit = first.in_proj.weight[:, self.where["spectrum"], 0].sum(0)
        self.register_buffer("unit", unit.detach(), persistent=False)

    def forward(self, heard: Tensor, latents: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the loss, and mean squared errors of spectrum (in the cepstrum's unit), pitch and phase.

        heard, latents: (B, C, T).
        """
        errors = heard - latents
        spectrum = errors[:, self.where["spectrum"]] * self.get_buffer("unit")[:, None]
        voiced = latents[:, self.where["pitch"]][:, 1::2].mean(1, keepdim=True) > 0
        phase = errors[:, self.where["phase"]] * voiced
        groups = (spectrum, errors[:, self.where["pitch"]], phase)
        parts = torch.stack([group.square().sum(1).mean() for group in groups])
        return parts[0] + PITCH_WEIGHT * parts[1] + PHASE_WEIGHT * parts[2], parts.detach()


class Reconstruction(nn.Module):
    """Codec with its losses."""

    def __init__(self, dac: Dac, training: CodecTraining):
        super().__init__()
        self.dac, self.training_settings = dac, training
        self.distance, self.hearing = MelDistance(dac.sample_rate), Hearing(dac)

    def forward(self, pieces: Pieces, own: Tensor) -> Losses:
        """Run the codec. own: 1 to decode the second half of the batch from the encoder's codes, else 0."""
        weights, quantizer = self.training_settings, self.dac.quantizer
        heard = self.dac.encoder(pieces.samples[:, None])
        with torch.no_grad():
            codes, own_codes = quantizer.encode(pieces.latents), quantizer.encode(heard)
            agreed = (codes == own_codes).float().mean((0, 2))
            second = torch.arange(len(codes), device=codes.device)[:, None, None] >= len(codes) // 2
            latents = quantizer.decode(torch.where(second & (own > 0), own_codes, codes))
        made = self.dac.decoder(latents)[:, 0]
        mel, wave = self.distance(made, pieces.samples), (made - pieces.samples).abs().mean()
        unheard, parts = self.hearing(heard, pieces.latents)
        total = weights.mel_weight * mel + weights.wave_weight * wave + unheard
        return Losses(total, torch.cat((torch.stack((mel, wave)).detach(), parts)), agreed)


@torch.no_grad()
def initialize(dac: Dac) -> None:
    """Draw weights that keep a signal's size through the network."""
    for name, module in dac.named_modules():
        if name.startswith("quantizer"):
            continue
        if isinstance(module, Conv1d):
            std = (module.weight.shape[1] * module.weight.shape[2]) ** -0.5
        elif isinstance(module, ConvTranspose1d):
            std = (2 * module.weight.shape[0]) ** -0.5  # each sample gets two taps
        else:
            continue
        factor = 0.3 if "res_unit" in name and name.endswith("conv2") else FACTORS.get(name, 1.0)
        nn.init.normal_(module.weight, std=factor * std)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


def snake(x: Tensor, alpha: Tensor) -> Tensor:
    """Snake1d with alpha as (C,)."""
    a = alpha[:, None]
    return x + (a + 1e-9).reciprocal() * torch.sin(a * x).square()


def compile_activations(network: nn.Module) -> None:
    """Replace all snakes with one compiled kernel per direction, instead of ten."""
    compiled = torch.compile(snake, dynamic=True)
    for module in network.modules():
        if isinstance(module, Snake1d):
            # a view: with the parameters themselves each would be compiled separately
            module.forward = lambda x, module=module: compiled(x, module.alpha.flatten())  # type: ignore


def train(
    settings: Settings,
    speech: Path,
    codebooks: Path,
    out: Path,
    minutes: float,
    processes: Processes,
    *,
    eager: bool = False,
) -> None:
    """Train until the time is up, from OUT if it exists, with a checkpoint every half minute."""
    training, device = settings.codec_training, processes.device
    known = restore(codebooks, device)
    if known is None:
        raise SystemExit(f"codec: no codebooks at {codebooks}; run stage 3 first")
    books = Codebooks.restored(known, settings.codec, device)
    dac = Dac(settings.codec).to(device)
    dac.quantizer.load_state_dict(books.quantizer.state_dict())
    dac.quantizer.requires_grad_(False)
    state = restore(out, device)
    data = Speech(speech, training.shards, books, device, settings.seed + 1000 * processes.rank)
    hours = data.samples.numel() / dac.sample_rate / 3600
    processes.say(f"codec: {sum(p.numel() for p in dac.parameters()):,} parameters, {hours:.1f} h")
    step, spent = 0, 0.0
    if state is None:
        initialize(dac)
        processes.share([p.data for p in dac.parameters()])
    else:
        dac.load_state_dict(state["dac"])
        step, spent = state["step"], state["spent"]
        data.generator.manual_seed(settings.seed + step + 1000 * processes.rank)
    cuda = device.type == "cuda"
    if cuda:
        compile_activations(dac)
    learned = [p for p in dac.parameters() if p.requires_grad]
    model = Reconstruction(dac, training).to(device)
    optimizer = torch.optim.AdamW(learned, betas=(0.8, 0.99), weight_decay=0.01, fused=cuda)
    if state is not None and "optimizer" in state:
        optimizer.load_state_dict(state["optimizer"])
    pieces, own = data.draw(training.batch, training.frames), torch.zeros((), device=device)

    def both_ways() -> Losses:
        losses = model(pieces, own)
        losses.total.backward()
        return losses

    graph = cuda and not eager
    run = replayed(both_ways, learned) if graph else both_ways
    clock = Clock(processes, minutes, spent)
    saved = clock.spent

    def save_all() -> None:
        weights = {"dac": dac.state_dict(), "optimizer": optimizer.state_dict()}
        save(out, {**weights, "step": step, "spent": clock.spent})

    while (progress := clock.look(step)) < 1:
        own.fill_(float(progress > training.own_from))
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(training.learning_rate, training.warmup, step, progress)
        for held, drawn in zip(pieces, data.draw(training.batch, training.frames), strict=True):
            held.copy_(drawn)
        if not graph:
            optimizer.zero_grad()
        losses = run()
        processes.average([p.grad for p in learned if p.grad is not None])
        for part in (dac.encoder, dac.decoder):
            nn.utils.clip_grad_norm_(part.parameters(), 3.0)
        optimizer.step()
        step += 1
        if step % 200 == 0:
            mel, wave, spectrum, pitch, phase = losses.parts.tolist()
            agreed = " ".join(f"{value:.2f}" for value in losses.agreed.tolist())
            processes.say(
                f"codec: step {step}, {clock.spent:.0f} s, mel {mel:.4f}, wave {wave:.4f}, encoder: spectrum "
                f"{spectrum:.3f}, pitch {pitch:.3f}, phase {phase:.3f}, equal codes {agreed}"
            )
        if processes.first and clock.spent - saved > 30:
            save_all()
            saved = clock.spent
    if processes.first:
        save_all()
    processes.say(f"codec: {step} steps, {out}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--settings", type=Path, default=DEFAULT)
    parser.add_argument("--speech", type=Path, required=True)
    parser.add_argument("--codebooks", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="checkpoint to write, and to continue from")
    parser.add_argument("--minutes", type=float, required=True, help="minutes of training in total")
    parser.add_argument("--eager", action="store_true", help="do not use a CUDA graph")
    given = parser.parse_args()
    settings = read_settings(given.settings)
    processes = Processes(settings.seed)
    train(settings, given.speech, given.codebooks, given.out, given.minutes, processes, eager=given.eager)
    processes.close()


if __name__ == "__main__":
    main()
