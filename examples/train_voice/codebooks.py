"""Stage 3, codebooks: residual vector quantization of the features by k-means.

    python -m examples.train_voice.codebooks --speech work/speech --out work/codebooks.pt

With --grow, existing codebooks are kept, and the settings' additional ones are fitted to their residual, so
that a codec and a language model trained on the first ones can continue.

Nothing is trained by gradients: latents are the centered and projected features (the spectrum is projected to
its principal components), and each codebook quantizes the residual of its group. The result is stored as the
quantizer of a DAC, whose encoder is later trained to compute these latents from samples.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor

from examples.train_voice.parallel import Processes, restore, save
from examples.train_voice.parameters import FEATURES, PHASE, PITCH, SPECTRUM
from examples.train_voice.settings import DEFAULT, Settings, read_settings
from examples.train_voice.speech import concatenated, wait_for_shards
from torch_ref.codecs.dac import ResidualVectorQuantizer, VectorQuantizer
from tts_core.codecs.dac import DacConfig

LLOYD = 25  # iterations
RARE = 0.05  # share of the mean use below which an entry is moved
EXTRA = 2  # coordinates with which a search by cosine finds the nearest entry


class Codebooks:
    """Projection of features (T, 196) to latents (C, T), and their quantizer."""

    def __init__(self, config: DacConfig, device: torch.device):
        self.middle = torch.zeros(FEATURES, device=device)
        self.projection = torch.zeros(FEATURES, config.hidden_size, device=device)
        self.quantizer = ResidualVectorQuantizer(config).to(device)

    def latents(self, features: Tensor) -> Tensor:
        """Project features. (..., 196) → (..., C) float32."""
        return (features.float() - self.middle) @ self.projection

    @torch.no_grad()
    def codes(self, features: Tensor) -> Tensor:
        """Quantize features. (T, 196) → (T, Q) int32."""
        return self.quantizer.encode(self.latents(features).T[None])[0].T

    def state(self) -> dict:
        return {
            "middle": self.middle,
            "projection": self.projection,
            "quantizer": self.quantizer.state_dict(),
        }

    @classmethod
    def restored(cls, state: dict, config: DacConfig, device: torch.device) -> Codebooks:
        books = cls(config, device)
        books.middle, books.projection = state["middle"].to(device), state["projection"].to(device)
        books.quantizer.load_state_dict(state["quantizer"])
        books.quantizer.requires_grad_(False)
        return books


def groups(components: int) -> dict[str, slice]:
    """Slices of the groups in the latents."""
    return {
        "spectrum": slice(0, components),
        "pitch": slice(components, components + PITCH),
        "phase": slice(components + PITCH, components + PITCH + PHASE),
    }


@torch.no_grad()
def find(features: Tensor, settings: Settings, seed: int, known: Codebooks | None = None) -> Codebooks:
    """Fit codebooks to features (N, 196) of hours of speech. known: codebooks to keep as the first."""
    config, roles = settings.codec, settings.codebook_roles
    components = config.codebook_dim[0] - EXTRA
    books, where = Codebooks(config, features.device), groups(components)
    generator = torch.Generator(features.device).manual_seed(seed)
    if known is None:
        books.middle, books.projection = projection(features, config)
        held = 0
    else:
        books.middle, books.projection = known.middle, known.projection
        held = len(known.quantizer.quantizers)
        books.quantizer.load_state_dict(known.quantizer.state_dict(), strict=False)
    unit = torch.ones(config.hidden_size, device=features.device)  # scale of latents in the features' units
    unit[:components] = 1 / books.projection[:, :components].norm(dim=0)
    rest = books.latents(features)
    quantizers = cast(list[VectorQuantizer], books.quantizer.quantizers)
    for index, (quantizer, role) in enumerate(zip(quantizers, roles, strict=True)):
        own = (rest * unit)[:, where[role]]
        if index >= held:
            install(quantizer, where[role], kmeans(own, config.codebook_size, generator), unit[where[role]])
        rest = rest - quantizer.decode(quantizer.encode(rest.T[None]))[0].T
        left = (rest * unit)[:, where[role]].square().sum() / own.square().sum()
        print(f"codebooks: {role}, {100 * float(left):.1f} % of the variance remains", flush=True)
    return books


def projection(features: Tensor, config: DacConfig) -> tuple[Tensor, Tensor]:
    """Compute the mean of features (N, 196), and the matrix that projects the rest to latents."""
    components = config.codebook_dim[0] - EXTRA
    middle = torch.zeros(FEATURES, device=features.device)
    matrix = torch.zeros(FEATURES, config.hidden_size, device=features.device)
    spectrum = features[:, :SPECTRUM].float()
    middle[:SPECTRUM] = spectrum.mean(0)
    centered = spectrum - middle[:SPECTRUM]
    _, vectors = torch.linalg.eigh((centered.T @ centered).double())
    principal = vectors[:, -components:].flip(1).float()
    unit = (centered @ principal).std(0).sqrt()  # halfway to equal sizes, for the networks
    matrix[:SPECTRUM, :components] = principal / unit
    others = torch.arange(PITCH + PHASE, device=features.device)
    matrix[SPECTRUM + others, components + others] = 1.0
    return middle, matrix


def kmeans(points: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Cluster points. (N, E) → (count, E). An entry with few points moves to a random one."""

    def drawn() -> Tensor:
        return points[torch.randint(len(points), (count,), generator=generator, device=points.device)]

    entries = drawn()
    for _ in range(LLOYD):
        nearest = (points @ entries.T - entries.square().sum(1) / 2).argmax(1)
        used = torch.bincount(nearest, minlength=count)[:, None]
        sums = torch.zeros_like(entries).index_add_(0, nearest, points)
        entries = torch.where(used > RARE * len(points) / count, sums / used.clamp_min(1), drawn())
    return entries


def install(layer: VectorQuantizer, where: slice, entries: Tensor, unit: Tensor) -> None:
    """Make `layer` quantize the latents' coordinates `where`, times `unit` (E,), to the nearest entry (K, E).

    DAC searches by cosine. A constant b as an additional coordinate of the query, -|c|²/2b as that of an
    entry c, and one more that gives all entries the same length make the largest cosine the nearest entry.
    Values are rounded to float16, in which they are exported.
    """
    assert layer.in_proj.bias is not None
    assert layer.out_proj.bias is not None
    for weight in (layer.in_proj.weight, layer.in_proj.bias, layer.out_proj.weight, layer.out_proj.bias):
        weight.zero_()
    entries = entries.half().float()
    size = entries.shape[1]
    squares = entries.square().sum(1)
    constant = squares.mean().sqrt()
    falling = -squares / (2 * constant)
    lengths = squares + falling.square()
    own = torch.arange(size, device=entries.device)
    layer.in_proj.weight[own, where.start + own, 0] = unit
    layer.in_proj.bias[size] = constant
    layer.out_proj.weight[where.start + own, own, 0] = 1 / unit
    weight = layer.codebook.weight
    weight.zero_()
    weight[:, :size] = entries
    weight[:, size] = falling
    weight[:, size + 1] = (lengths.max() - lengths).clamp_min(0).sqrt()
    for rounded in (weight, layer.in_proj.weight, layer.in_proj.bias, layer.out_proj.weight):
        rounded.copy_(rounded.half().float())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--settings", type=Path, default=DEFAULT)
    parser.add_argument("--speech", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--grow", type=Path, help="codebooks to keep; additional ones are fitted")
    given = parser.parse_args()
    settings = read_settings(given.settings)
    processes, begun = Processes(settings.seed), time.monotonic()
    known = None
    if given.grow:
        state = restore(given.grow, processes.device)
        if state is None:
            raise SystemExit(f"codebooks: none at {given.grow}; give a file of an earlier stage 3")
        known = Codebooks.restored(state, fewer(settings.codec, state["quantizer"]), processes.device)
    names = wait_for_shards(given.speech, settings.codebook_shards)
    features = torch.from_numpy(concatenated(given.speech, names, "features")).to(processes.device)
    waited = time.monotonic() - begun
    save(given.out, find(features, settings, settings.seed, known).state())
    print(
        f"codebooks: {len(features):,} frames, {time.monotonic() - begun - waited:.0f} s after waiting "
        f"{waited:.0f} s",
        flush=True,
    )


def fewer(config: DacConfig, quantizer: dict[str, Tensor]) -> DacConfig:
    """Reduce the configuration to the number of codebooks in a quantizer's state."""
    count = sum(name.endswith("codebook.weight") for name in quantizer)
    if count > config.n_codebooks:
        raise SystemExit(
            f"codebooks: --grow has {count}, the settings {config.n_codebooks}; raise n_codebooks"
        )
    return replace(config, n_codebooks=count, codebook_dim=config.codebook_dim[:count])


def codes_of(books: Codebooks, features: np.ndarray, device: torch.device) -> np.ndarray:
    """Quantize features in NumPy. (T, 196) → (T, Q) uint8."""
    return books.codes(torch.from_numpy(features).to(device)).to(torch.uint8).cpu().numpy()


if __name__ == "__main__":
    main()
