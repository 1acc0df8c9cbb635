"""A text's draws by the plainest loop over Dia's network in PyTorch: the oracle of every form of slots."""

from __future__ import annotations

import numpy as np
import torch

from torch_ref.dia.dia import Dia
from torch_ref.sampling import draw_rows
from tts_core.dia.grid import DelayGrid
from tts_core.dia.options import SAMPLER_0626, SAMPLER_V01, DiaSampling, allowed_ids
from tts_core.nn.noise import Noise


@torch.inference_mode()
def draws(built: Dia, tokens: np.ndarray, grid: DelayGrid, sampling: DiaSampling, noise: Noise) -> np.ndarray:
    """Draw until the grid of one text is done. tokens: (S,).  → (rows, C)."""
    guided, device, drawn = sampling.cfg_scale != 0, built.logits_dense.weight.device, []
    source = built.read([torch.from_numpy(tokens).to(device)], built.encode_empty() if guided else None)
    sampler, end = SAMPLER_V01 if built.config.cross_rope else SAMPLER_0626, built.config.eos_token_id
    cache, first = built.new_cache(), 0
    shape = grid.channels, built.config.decoder_config.vocab_size
    table = sampler.named(torch.from_numpy(sampler.table([sampling])).to(device), 3)
    allowed = torch.from_numpy(allowed_ids(*shape, end)).to(device)
    while not grid.done:
        rows = torch.from_numpy(grid.rows[None, first : grid.filled]).to(device)
        first = grid.filled
        logits = built.next_logits(torch.cat([rows, rows]) if guided else rows, cache, source)
        uniform = torch.from_numpy(noise.uniform(grid.step, shape)[None]).to(device)
        ids = draw_rows((logits[:1], logits[-1:]), table, uniform, sampler, allowed=allowed, end=end)
        drawn.append(ids.cpu().numpy())
        grid.accept(drawn[-1][0])
    return np.concatenate(drawn)
