import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tts_core.dia.delay import apply_delay, revert_delay

BOS, PAD = -7, -9


@st.composite
def codes_and_delays(draw):
    q, frames = draw(st.integers(1, 6)), draw(st.integers(0, 8))
    delays = draw(st.lists(st.integers(0, 9), min_size=q, max_size=q))
    return draw(arrays(np.int32, (q, frames), elements=st.integers(0, 1023))), delays


@given(codes_and_delays())
def test_every_cell(case):
    codes, delays = case
    rows = apply_delay(codes, delays, BOS, PAD)
    frames = codes.shape[1]
    assert rows.dtype == np.int32
    assert rows.shape == (len(delays), frames + max(delays))
    for q, delay in enumerate(delays):
        for t in range(rows.shape[1]):
            f = t - delay
            assert rows[q, t] == (BOS if f < 0 else PAD if f >= frames else codes[q, f])


@given(codes_and_delays())
def test_revert_undoes_apply(case):
    codes, delays = case
    back = revert_delay(apply_delay(codes, delays, BOS, PAD), delays)
    assert back.dtype == np.int32
    np.testing.assert_array_equal(back, codes)


def test_by_hand():
    codes = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]])
    rows = [[1, 2, 3, PAD, PAD], [BOS, 4, 5, 6, PAD], [BOS, BOS, 7, 8, 9]]
    assert apply_delay(codes, (0, 1, 2), BOS, PAD).tolist() == rows


@pytest.mark.parametrize("convert", [lambda c, d: apply_delay(c, d, BOS, PAD), revert_delay])
def test_a_delay_for_each_codebook(convert):
    with pytest.raises(ValueError, match="2 delays for codes of shape \\(3, 4\\)"):
        convert(np.zeros((3, 4), np.int32), (0, 1))
    with pytest.raises(ValueError, match="expected \\(Q, T\\)"):
        convert(np.zeros((1, 2, 4), np.int32), (0, 1))


def test_rows_fewer_than_the_longest_delay():
    with pytest.raises(ValueError, match="3 rows are fewer than the longest delay 4"):
        revert_delay(np.zeros((2, 3), np.int32), (0, 4))
