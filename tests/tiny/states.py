"""States of a diffusion's run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.sides import Side


def states(side: Side, run: Any) -> Iterator[np.ndarray]:
    """Yield the codes (S, Q) that enter each timestep, and the clean ones at the end."""
    while not run.done:
        yield side.numpy(run.codes).copy()
        run.step()
    run.result()  # may raise
    yield side.numpy(run.codes).copy()
