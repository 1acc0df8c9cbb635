"""Sources of noise: one that records its use, one that only the host draws."""

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


class GivenNoise:
    """A source of noise that no device can draw itself."""

    def __init__(self, seed: int):
        self.source = HostNoise(seed)

    def uniform(self, step: int, shape: tuple[int, ...]) -> np.ndarray:
        return self.source.uniform(step, shape)
