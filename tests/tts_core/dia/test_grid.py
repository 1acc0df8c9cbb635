"""The grid against its definition: forced, drawn, EOS or PAD, computed for every slot separately."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.tts_core.dia.test_config import FLAT
from tts_core.dia.config import DiaConfig, read_published
from tts_core.dia.grid import FREE, DelayGrid, apply_delay, revert_delay

EOS, PAD, BOS = 1024, 1025, 1026
START, END = -7, -9  # no codes


def config_with(delays) -> DiaConfig:
    published = read_published(FLAT)
    decoder = replace(published.decoder_config, num_channels=len(delays))
    return replace(published, decoder_config=decoder, delay_pattern=tuple(delays))


@st.composite
def runs(draw):
    """A text, and the id that the model would draw for every slot."""
    delays = [0, *draw(st.lists(st.integers(0, 6), min_size=1, max_size=3))]
    length, limit = draw(st.integers(0, 5)), draw(st.integers(1, 8))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    drawn = rng.integers(0, 1024, (40, len(delays)))
    drawn[:, 0] = np.where(rng.random(40) < draw(st.sampled_from([0, 0.1, 0.5])), EOS, drawn[:, 0])
    prompt = rng.integers(0, 1024, (len(delays), length)).astype(np.int32) if length else None
    return config_with(delays), prompt, limit, drawn


def end_of(drawn, prompt, limit):
    """Row of channel 0's EOS, drawn after the prompt or forced by the limit, and True if drawn."""
    rows = range(prompt + 1, prompt + limit + 1)
    return next(((row, True) for row in rows if drawn[row, 0] == EOS), (prompt + limit + 1, False))


def slot(config, drawn, codes, end, row, channel):
    """Id in one slot of a finished text."""
    frame = row - 1 - config.delay_pattern[channel]
    if row == 0 or frame < 0:
        return BOS
    if codes is not None and frame < codes.shape[1]:
        return codes[channel, frame]
    since = row - end
    if since >= config.delay_pattern[channel]:
        return EOS if since == config.delay_pattern[channel] else PAD
    return drawn[row, channel]


@given(runs())
def test_every_slot_and_every_code(run):
    config, prompt, limit, drawn = run
    grid, start = DelayGrid(config, prompt, limit), 0 if prompt is None else prompt.shape[1]
    assert grid.filled == 1 + start
    seen = grid.codes()
    while not grid.done:
        assert grid.step == grid.filled - 1 - start
        grid.accept(drawn[grid.filled])
        before, seen = seen, grid.codes()
        assert seen.shape[1] == grid.frames
        np.testing.assert_array_equal(seen[:, : before.shape[1]], before)  # known slots do not change
    end, stopped = end_of(drawn, start, limit)
    assert grid.finish_reason == ("stop" if stopped else "length")
    frames = end - 1 - start
    assert seen.shape == (len(config.delay_pattern), frames)
    assert seen.dtype == np.int32
    channels = range(len(config.delay_pattern))
    expected = [[slot(config, drawn, prompt, end, r, c) for c in channels] for r in range(grid.filled)]
    np.testing.assert_array_equal(grid.rows[: grid.filled], expected)
    for channel, delay in enumerate(config.delay_pattern):
        own = [grid.rows[start + 1 + frame + delay, channel] for frame in range(frames)]
        assert seen[channel].tolist() == own
    assert grid.filled == end + max(1, config.longest_delay)  # no superfluous row


@given(runs())
def test_last_channel_free_frees_the_last_row_before_speech(run):
    config, prompt, limit, _ = run
    length = 0 if prompt is None else prompt.shape[1]
    expected = DelayGrid(config, prompt, limit).rows.copy()
    free = DelayGrid(config, prompt, limit, last_channel_free=True).rows
    if length + config.longest_delay:
        last = [c for c, d in enumerate(config.delay_pattern) if d == config.longest_delay]
        expected[length + config.longest_delay, last] = FREE
    np.testing.assert_array_equal(free, expected)


@st.composite
def codes_and_delays(draw):
    q, frames = draw(st.integers(1, 6)), draw(st.integers(0, 8))
    delays = draw(st.lists(st.integers(0, 9), min_size=q, max_size=q))
    return draw(arrays(np.int32, (q, frames), elements=st.integers(0, 1023))), delays


@given(codes_and_delays())
def test_every_cell(case):
    codes, delays = case
    rows = apply_delay(codes, delays, START, END)
    frames = codes.shape[1]
    assert rows.dtype == np.int32
    assert rows.shape == (len(delays), frames + max(delays))
    for q, delay in enumerate(delays):
        for t in range(rows.shape[1]):
            f = t - delay
            assert rows[q, t] == (START if f < 0 else END if f >= frames else codes[q, f])


@given(codes_and_delays())
def test_revert_undoes_apply(case):
    codes, delays = case
    back = revert_delay(apply_delay(codes, delays, START, END), delays)
    assert back.dtype == np.int32
    np.testing.assert_array_equal(back, codes)


@pytest.mark.parametrize("convert", [lambda c, d: apply_delay(c, d, START, END), revert_delay])
def test_a_delay_for_each_codebook(convert):
    with pytest.raises(ValueError, match="zip"):
        convert(np.zeros((3, 4), np.int32), (0, 1))
