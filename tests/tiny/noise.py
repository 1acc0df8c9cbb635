"""Sources of noise that record their use."""

from __future__ import annotations

import numpy as np

from tts_core.nn.noise import HostNoise


class CountingNoise(HostNoise):
    """Record the steps of the drawn numbers, and so the work that was really done."""

    def __init__(self, seed: int):
        super().__init__(seed)
        self.steps: list[int] = []

    def uniform(self, step: int, shape: tuple[int, ...]) -> np.ndarray:
        self.steps.append(step)
        return super().uniform(step, shape)
