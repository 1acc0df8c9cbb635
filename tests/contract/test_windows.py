"""The bound of samples that were decoded in other windows: rounding is within, a missing frame is not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.contract.speakers import alone, every_model, mixed, speaker, windows
from tests.windows import SOUNDS


@every_model
def test_the_bound_is_larger_than_rounding_and_smaller_than_a_missing_frame(model: str) -> None:
    """A window whose context lacks the frame next to it is far off.

    The farthest frame of DAC's context moves samples of this network by 3e-5 only, as much as float32 itself:
    tests/parity/codecs finds it missing in float64.
    """
    one = alone(model, "torch", mixed(model, "torch")[0])
    right, ported = (SOUNDS[model](speaker(model, side).engine, one.codes)[0] for side in ("torch", "mlx"))
    windows(model).assert_same(replace(one, audio=right), replace(one, audio=ported))
    at = one.codes.shape[1] // 2
    hop = -(-len(right) // one.codes.shape[1])
    lacking = SOUNDS[model](speaker(model, "torch").engine, np.delete(one.codes, at - 1, axis=1))[0]
    wrong = np.concatenate([right[: at * hop], lacking[(at - 1) * hop :]])[: len(right)]
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        windows(model).assert_same(replace(one, audio=right), replace(one, audio=wrong))
    assert np.abs(right - wrong).max() > 10 * windows(model).rounding(one)
