"""LSTMs against torch's own layer in float64: whole and in pieces, unrolled and on MLX."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
import torch
from torch import nn

import mlx_port.layers.lstm as mlx_lstm
import torch_ref.layers.lstm as torch_lstm
from tests.tolerance import assert_within
from torch_ref.limits import Backend, LimitError, enforce, lstm_trusted, observe

SIZES = [(5, 7, 1), (6, 6, 2), (3, 4, 3)]  # width in, width, layers
LEAKING = Backend("mps", "2.12.1", "15.2")


@cache
def parameters(sizes: tuple[int, int, int]) -> dict[str, torch.Tensor]:
    torch.manual_seed(sum(sizes))
    layer = nn.LSTM(*sizes)
    for weight in layer.parameters():
        nn.init.normal_(weight, 0, 0.6)
    return layer.state_dict()


def filled(layer: Any, sizes: tuple[int, int, int]) -> Any:
    if isinstance(layer, mlx_lstm.LSTM):
        weights = [(name, mx.array(weight.numpy())) for name, weight in parameters(sizes).items()]
        layer.load_weights(weights, strict=True)
        return layer
    layer.load_state_dict(parameters(sizes), strict=True)
    return layer.eval()


def numbers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32)


def oracle(
    sizes: tuple[int, int, int], x: np.ndarray, state: Sequence[np.ndarray] | None
) -> list[np.ndarray]:
    """torch.nn.LSTM in float64."""
    layer = filled(nn.LSTM(*sizes, batch_first=True), sizes).double()
    given = state and tuple(torch.from_numpy(part).double() for part in state)
    y, (hidden, cell) = layer(torch.from_numpy(x).double(), given)
    return [part.detach().numpy() for part in (y, hidden, cell)]


def ours(
    side: str, sizes: tuple[int, int, int], x: np.ndarray, state: Sequence[np.ndarray] | None
) -> list[np.ndarray]:
    if side == "mlx":
        y, after = filled(mlx_lstm.LSTM(*sizes), sizes)(mx.array(x), state and tuple(map(mx.array, state)))
        return [np.array(part) for part in (y, *after)]
    given = state and tuple(map(torch.from_numpy, state))
    layer = filled(torch_lstm.LSTM(*sizes), sizes)
    with torch.inference_mode():
        if side == "unrolled":
            with enforce(LEAKING):
                y, after = layer(torch.from_numpy(x), given)
        else:
            y, after = layer(torch.from_numpy(x), given)
    return [part.numpy() for part in (y, *after)]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("steps", [1, 2, 37])
@pytest.mark.parametrize("side", ["torch", "unrolled", "mlx"])
@pytest.mark.parametrize("started", [False, True])
def test_sequence_and_state(sizes, steps, side, started):
    width, hidden, layers = sizes
    x = numbers(steps, 2, steps, width)
    state = [numbers(9, layers, 2, hidden), numbers(8, layers, 2, hidden)] if started else None
    truth, known = oracle(sizes, x, state), ours("torch", sizes, x, state)
    for what, own, one, exact in zip(("y", "h", "c"), ours(side, sizes, x, state), known, truth, strict=True):
        assert_within(own, one, exact, f"{side}: {what}")


@pytest.mark.parametrize("side", ["torch", "unrolled", "mlx"])
@pytest.mark.parametrize("cuts", [(1,), (36,), (5, 6, 20)])
def test_pieces_are_the_whole(side, cuts):
    sizes = SIZES[1]
    x, pieces = numbers(1, 2, 37, 6), []
    state: list[np.ndarray] = [np.zeros((2, 2, 6), np.float32)] * 2
    for piece in np.split(x, cuts, axis=1):
        y, *state = ours(side, sizes, piece, state)
        pieces.append(y)
    truth, known = oracle(sizes, x, None), ours("torch", sizes, x, None)
    found = [np.concatenate(pieces, axis=1), *state]
    for what, own, one, exact in zip(("y", "h", "c"), found, known, truth, strict=True):
        assert_within(own, one, exact, f"{side}: {what}")


@pytest.mark.parametrize(
    ("backend", "trusted"),
    [
        (Backend("mps", "2.12.1", "14.5"), True),
        (Backend("mps", "2.12.1", "15.0"), False),
        (Backend("mps", "2.12.1"), False),
        (Backend("mps", "2.15.0", "27.0"), False),
        (Backend("cuda", "2.12.1"), True),
    ],
    ids=str,
)
def test_the_native_layer_is_used_where_no_rule_forbids_it(backend, trusted):
    sizes, x = SIZES[1], torch.zeros(1, 3, 6)
    layer = filled(torch_lstm.LSTM(*sizes), sizes)
    with observe(backend) as seen, torch.inference_mode():
        assert lstm_trusted(x.device, 2) is trusted
        layer(x)
    assert not seen.broken
    if not trusted:
        with pytest.raises(LimitError, match="lstm"), enforce(backend), torch.inference_mode():
            filled(nn.LSTM(*sizes), sizes)(x)


def test_on_the_cpu_nothing_forbids_it():
    assert lstm_trusted(torch.device("cpu"), 2)
