"""Mimi's transformer and resampling, MLX against PyTorch in the derived bound, and whole against pieces.

Its convolutions, codes and windows: test_codecs.py.
"""

from functools import partial

import numpy as np
import pytest
import torch

from tests.golden.codec_bench import CodecSide
from tests.parity.codecs.kinds import MIMI, bench, parity
from tests.tiny.inputs import normal
from tts_core.codecs.mimi import POLICY

TINY = MIMI["mimi 5-2-3"]


@pytest.mark.parametrize("half", ["encoder_transformer", "decoder_transformer"])
def test_transformer_in_pieces(half: str) -> None:
    """Positions run on, and a piece of any length sees the whole window of its first step."""
    x = normal(5, 1, TINY.hidden_size, 40).astype(np.float64)

    def run(side: CodecSide, cuts: list[int]) -> np.ndarray:
        state, made = None, []
        for start, stop in zip([0, *cuts], [*cuts, 40], strict=True):
            network = getattr(side.codec, half)
            carried = side.module("layers.carried").Carried(state)
            made.append(side.from_channels(network(side.channels(x[:, :, start:stop]), carried)))
            state = carried.after(stop - start)
        return np.concatenate(made, axis=2)

    with torch.inference_mode():
        for cuts in ([20], [1, 2, 3, 10, 19], list(range(1, 40))):
            np.testing.assert_allclose(
                run(bench(TINY).torch64, cuts), run(bench(TINY).torch64, []), rtol=0, atol=1e-12
            )
            parity(f"cuts {cuts}", partial(run, cuts=cuts), TINY)


def test_the_default_windows_cut_a_long_clip() -> None:
    assert bench(TINY).side.codec.policy == POLICY
    assert [stop for _, stop in POLICY.even_cuts(130)] == [64, 128, 130]
    assert [stop for _, stop in POLICY.decode_cuts(130)] == [2, 6, 14, 30, 62, 126, 130]
