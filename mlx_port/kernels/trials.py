"""Trials of the kernels that a loaded model will use: a chip's compiler fails at load, not in speech."""

from __future__ import annotations

from collections.abc import Iterable

import mlx.core as mx

from mlx_port.kernels import add_norm, noise, turn
from mlx_port.kernels.source import on_gpu, passes


def try_all(dtypes: Iterable[mx.Dtype]) -> None:
    """Run the trials of networks of these dtypes; those of products run where a layer chooses its path
    (mlx_port.steps.rows). Without effect on a CPU.
    """
    if not on_gpu():
        return
    passes(noise.trial)
    for dtype in dtypes:
        passes(add_norm.trial, dtype)
        passes(turn.trial, dtype)
