"""Write tts_core/mars5/schedule.npz: the distance of PyTorch's alphas from correctly rounded ones.

    python -m tests.tts_core.mars5.schedule_units

Use MKL on x86, as for upstream's vectors; other builds of PyTorch round cosines differently.
"""

import math

import numpy as np
import torch

from tts_core.mars5.diffusion import MOST_TIMESTEPS, OFFSET, SMALLEST_RATIO, UNITS, rounded_alphas


def torch_alphas(timesteps: int) -> np.ndarray:
    """(T,) float32, computed as upstream does."""
    x = torch.linspace(0, timesteps, timesteps + 1)
    survival = torch.cos((x / timesteps + OFFSET) / (1 + OFFSET) * math.pi * 0.5) ** 2
    survival = survival / survival[0]
    return torch.sqrt((survival[1:] / survival[:-1]).clamp(SMALLEST_RATIO, 1)).numpy()


if __name__ == "__main__":
    units = [
        torch_alphas(t).view(np.int32) - rounded_alphas(t).view(np.int32)
        for t in range(1, MOST_TIMESTEPS + 1)
    ]
    np.savez_compressed(UNITS, units=np.concatenate(units).astype(np.int8))
    print(UNITS, UNITS.stat().st_size, "bytes, largest", max(int(abs(u).max()) for u in units))
