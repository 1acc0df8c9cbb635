"""MARS5's diffusion under the rules of MPS, at full size too."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import torch_ref.mars5.reverse as reverse
from tests.tiny.mars5_nar import TEXT, codes, config, weights
from torch_ref.limits import Backend, enforce
from torch_ref.mars5.residual_transformer import ResidualTransformer
from tts_core.mars5.config import is_norm
from tts_core.mars5.diffusion import Cells, Diffusion, first_noise, make_cells
from tts_core.mars5.spec import MARS5_NAR
from tts_core.nn.noise import HostNoise

FEW = replace(
    MARS5_NAR, encoder_layers=1, decoder_layers=2, speaker_layers=1
)  # all layers have the same shapes
SOME = [
    Backend("mps", *versions) for versions in (("2.11.0", "14.5"), ("2.12.1", "15.0"), ("2.15.0", "26.2"))
]
WAYS: dict[str, Any] = {
    "defaults": Diffusion(timesteps=2, q0_override_steps=0),
    "as upstream draws": Diffusion(timesteps=2, q0_override_steps=0, draws="per class"),
    "no guidance": Diffusion(timesteps=2, guidance_w=1.0),
}


def tiny(device: str = "cpu", dtype: torch.dtype = torch.float32) -> ResidualTransformer:
    network = ResidualTransformer(config())
    network.load_state_dict({name: torch.from_numpy(weights().read(name)) for name in weights().names()})
    for name, parameter in network.named_parameters():
        parameter.data = parameter.data.to(torch.float32 if is_norm(name) else dtype)
    return network.to(device).eval().requires_grad_(False)


def cells(*, deep: bool) -> Cells:
    start = first_noise(HostNoise(1), 5, 6, 23)
    return make_cells(codes(6, seed=7)[0], start, codes(4, seed=2) if deep else None, n_classes=23)


def run(
    network: ResidualTransformer, settings: Diffusion, form: Any = reverse.DenoisingStep, *, deep: bool
) -> np.ndarray:
    diffusion = reverse.ReverseDiffusion(network, form)
    return diffusion.run(TEXT, codes(4, seed=2), cells(deep=deep), settings, noise=HostNoise(1))


@pytest.mark.parametrize(
    ("backend", "way", "deep"), list(zip(SOME, WAYS, (True, False, True), strict=True)), ids=str
)
def test_under_the_rules_of_mps(backend: Backend, way: str, *, deep: bool) -> None:
    plain = run(tiny(), WAYS[way], deep=deep)
    with enforce(backend):
        np.testing.assert_array_equal(run(tiny(), WAYS[way], deep=deep), plain)


@pytest.mark.parametrize("draws", ["per cell", "per class"])
@pytest.mark.parametrize("backend", SOME, ids=str)
def test_full_size(backend: Backend, draws: Any) -> None:
    """One step of a deep clone, shapes only: 12 s of reference and 20 s of speech."""
    reference, frames = np.zeros((8, 900), np.int32), 1500
    begin = make_cells(np.zeros(frames, np.int32), np.zeros((8, frames), np.int32), reference, n_classes=1025)
    settings = Diffusion(draws=draws)
    with torch.device("meta"):
        network = ResidualTransformer(FEW).to(torch.float16)
        for name, parameter in network.named_parameters():
            parameter.data = parameter.data.float() if is_norm(name) else parameter.data
    with enforce(backend), torch.inference_mode():
        source = reverse.ReverseDiffusion(network).read(np.zeros(150, np.int32), reference, begin, settings)
        step = reverse.DenoisingStep(network, source, begin, settings)
        meta = torch.device("meta")
        numbers = torch.zeros(2, 2400, 8, *[1025] * (draws == "per class"), device=meta)
        state = torch.zeros(2400, 8, dtype=torch.long, device=meta)
        after = step(state, torch.zeros(1, dtype=torch.long, device=meta), numbers)
    assert after.shape == (2400, 8)
    assert (source.text.shape, step.first_frame, step.first_book) == ((2, 151, 1024), 900, 1)
