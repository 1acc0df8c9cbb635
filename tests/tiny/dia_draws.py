"""A text's draws by the plainest loop over Dia's network in PyTorch: the oracle of every form of slots."""

from __future__ import annotations

import numpy as np
import torch

from torch_ref.dia.dia import Dia
from torch_ref.dia.sampling import candidates_0626, candidates_v01, draw
from torch_ref.limits.remedies import first_largest
from tts_core.dia.grid import DelayGrid
from tts_core.dia.sampling import DiaSampling
from tts_core.nn.noise import Noise


@torch.inference_mode()
def draws(built: Dia, tokens: np.ndarray, grid: DelayGrid, sampling: DiaSampling, noise: Noise) -> np.ndarray:
    """Draw until the grid of one text is done. tokens: (S,).  → (rows, C)."""
    guided, device, drawn = sampling.cfg_scale != 0, built.logits_dense.weight.device, []
    source = built.read([torch.from_numpy(tokens).to(device)], built.encode_nothing() if guided else None)
    candidates = candidates_v01 if built.config.cross_rope else candidates_0626
    cache, first = built.new_cache(), 0
    shape = grid.channels, built.config.decoder_config.vocab_size
    while not grid.done:
        rows = torch.from_numpy(grid.rows[None, first : grid.filled]).to(device)
        first = grid.filled
        logits = built.next_logits(torch.cat([rows, rows]) if guided else rows, cache, source)
        kept = candidates(logits[:1], logits[-1:], sampling, built.config.eos_token_id)
        if sampling.temperature:
            uniform = torch.from_numpy(noise.uniform(grid.step, shape)[None])
            drawn.append(draw(kept, uniform.to(device)).cpu().numpy())
        else:
            drawn.append(first_largest(kept).cpu().numpy())
        grid.accept(drawn[-1][0])
    return np.concatenate(drawn)
