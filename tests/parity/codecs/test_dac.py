"""DAC layer by layer, MLX against PyTorch, in the derived bound; its quantizer's choices and its windows."""

import numpy as np

from tests.parity.codecs.kinds import DAC, new_weights, of_weights
from tests.tiny.inputs import normal
from tts_core.codecs.dac import encode_window

TINY = DAC["dac 2-3-5"]


def test_snake() -> None:
    """An alpha of 0 makes the epsilon of the reciprocal matter."""
    x = normal(1, 2, 4, 33) * 30
    weights = new_weights(TINY)
    weights.tensors["encoder.block.0.snake1.alpha"][:] = np.array([0.0, 1e-7, 0.5, 20.0])[None, :, None]
    trio = of_weights(TINY, weights)
    trio.parity("snake", lambda side: side.conv(side.codec.encoder.block[0].snake1, x))


def test_windows_are_narrower_than_the_whole() -> None:
    """Comparisons of windows with the whole compare different runs."""
    window = encode_window(TINY, 16, 23, 40)
    assert (window.first, window.last) != (0, 40)
