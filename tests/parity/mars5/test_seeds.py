"""A seed means the same codes on both sides: whole diffusions of all 1,025 classes, default draws."""

import numpy as np
import pytest

from tests.tiny.mars5 import pipeline, to_end
from tts_core.mars5.diffusion import Diffusion, first_noise, make_cells
from tts_core.nn.noise import HostNoise

pytestmark = pytest.mark.rest

FRAMES, PROMPT = 14, 10


@pytest.mark.parametrize(
    ("timesteps", "seeds"),
    [(20, range(2)), pytest.param(200, range(8), marks=pytest.mark.slow)],
    ids=["20 timesteps", "200 timesteps"],
)
@pytest.mark.parametrize("deep", [False, True], ids=["shallow", "deep"])
def test_whole_runs(timesteps: int, seeds: range, *, deep: bool) -> None:
    sizes, random = pipeline("torch").engine.nar_config, np.random.default_rng(timesteps + deep)
    codes, changed = sizes.codebook_rows - 1, []
    for seed in seeds:
        noise, text = HostNoise(seed), random.integers(0, sizes.text_rows, 12).astype(np.int32)
        reference = random.integers(0, codes, (sizes.n_codebooks, PROMPT)).astype(np.int32)
        first = random.integers(0, codes, FRAMES)
        start = first_noise(noise, sizes.n_codebooks, FRAMES, sizes.n_classes)
        cells = make_cells(first, start, reference if deep else None, n_classes=sizes.n_classes)
        settings = Diffusion(timesteps=timesteps)
        made = [
            to_end(pipeline(side).engine.diffusion.begin(text, reference, cells, settings, noise=noise))
            for side in ("torch", "mlx")
        ]
        changed.append(int((made[0] != made[1]).sum()))
        assert len(np.unique(made[0][1:, -FRAMES:])) > FRAMES, "the codes hardly differ from each other"
    assert changed == [0] * len(seeds), "cells that differ, by seed"
