"""Snake with logarithms of its factors, MLX against PyTorch and its formula."""

import numpy as np

from tests.sides import ORACLE, Side, assert_parity
from tests.tiny.inputs import normal


def snake(side: Side, x: np.ndarray, alpha: np.ndarray, beta: np.ndarray) -> np.ndarray:
    layer = side.module("layers.snake").LogSnake1d(len(alpha))
    if side.kind == "mlx":
        layer.alpha, layer.beta = side.array(alpha), side.array(beta)
    else:
        layer.alpha.data, layer.beta.data = side.array(alpha), side.array(beta)
    with side.inference():
        return side.from_channels(layer(side.channels(x)))


def test_snake_is_its_formula() -> None:
    """Factors from e^-3 to e^3: the small number beside beta matters where that is tiny."""
    x, alpha = normal(1, 2, 5, 9), np.linspace(-3, 3, 5)
    for beta in (np.linspace(3, -3, 5), np.full(5, -18.0)):
        expected = x + np.sin(x * np.exp(alpha)[:, None]) ** 2 / (np.exp(beta)[:, None] + 1e-9)
        np.testing.assert_allclose(snake(ORACLE, x.astype(np.float64), alpha, beta), expected, rtol=1e-12)
        assert_parity(
            "snake", lambda side, b=beta: snake(side, x, alpha.astype(np.float32), b.astype(np.float32))
        )
