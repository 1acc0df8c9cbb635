"""Small diffusions of MARS5 in PyTorch."""

from typing import Any

import numpy as np
import torch

import torch_ref.mars5.reverse as reverse
from tests.tiny.mars5 import to_end
from tests.tiny.mars5_nar import TEXT, codes
from tests.tiny.networks import nar_config, tiny
from torch_ref.mars5.residual_transformer import ResidualTransformer
from tts_core.mars5.config import is_norm
from tts_core.mars5.diffusion import Cells, Diffusion, first_noise, make_cells
from tts_core.nn.noise import HostNoise

WAYS: dict[str, Any] = {
    "defaults": Diffusion(timesteps=2, q0_override_steps=0),
    "as upstream draws": Diffusion(timesteps=2, q0_override_steps=0, draws="per class"),
    "no guidance": Diffusion(timesteps=2, guidance_w=1.0),
}


def small(device: str = "cpu", dtype: torch.dtype = torch.float32) -> ResidualTransformer:
    network = ResidualTransformer(nar_config())
    weights = tiny("mars5_nar")
    network.load_state_dict({name: torch.from_numpy(weights.read(name)) for name in weights.names()})
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
    return to_end(diffusion.begin(TEXT, codes(4, seed=2), cells(deep=deep), settings, noise=HostNoise(1)))
