"""Streams of codecs: each frame is computed once, and any cutting gives the whole decode.

The bound is that of a float32 run (tests/tolerance.py): a cut only moves where sums of a convolution begin.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.golden.bench import Bench
from tests.golden.codec_bench import CodecSide
from tests.parity.codecs.kinds import DAC, MIMI, QWEN3
from tests.parity.codecs.kinds import bench as bench_of_config
from tests.tolerance import assert_within
from tts_core.codecs import dac, mimi, qwen3_codec
from tts_core.codecs.dac_calls import Passage
from tts_core.codecs.dac_streams import DacStream, frames_fed, launch_next

FRAMES = 23
STREAMS = 3
CODECS = [*MIMI, *QWEN3]
every_codec = pytest.mark.parametrize("name", CODECS)


def bench(name: str) -> Bench[CodecSide]:
    return bench_of_config((MIMI | QWEN3)[name])


def codes_of(name: str, batch: int = STREAMS, frames: int = FRAMES, seed: int = 0) -> np.ndarray:
    config = bench(name).side.codec.config
    shape = batch, config.n_codebooks, frames
    return np.random.default_rng(seed).integers(0, config.codebook_size, shape).astype(np.int32)


def pieces(side: CodecSide, codes: np.ndarray, stops: Sequence[int]) -> tuple[np.ndarray, Any]:
    """Decode a stream up to each stop. → (B, L), and the state after it."""
    state, made, start = None, [], 0
    for stop in stops:
        samples, state = side.codec.decode_window(codes[:, :, start:stop], state)
        made.append(side.numpy(samples))
        start = stop
    return np.concatenate(made, axis=1), state


@cache
def whole(name: str) -> tuple[np.ndarray, np.ndarray]:
    """The codes of `codes_of` at once, in torch in float32 and in float64."""
    codes = codes_of(name)
    return pieces(bench(name).torch32, codes, [FRAMES])[0], pieces(bench(name).torch64, codes, [FRAMES])[0]


@every_codec
@settings(max_examples=10)
@given(cuts=st.sets(st.integers(1, FRAMES - 1)))
def test_any_cutting_is_the_whole(name: str, cuts: set[int]) -> None:
    stops, (known, truth) = [*sorted(cuts), FRAMES], whole(name)
    exact, _ = pieces(bench(name).torch64, codes_of(name), stops)
    np.testing.assert_allclose(exact, truth, rtol=0, atol=1e-13 * FRAMES * np.abs(truth).max())
    for side in (bench(name).torch32, bench(name).side):
        assert_within(pieces(side, codes_of(name), stops)[0], known, truth, f"{name} {side.kind} {stops}")


@every_codec
def test_a_state_has_the_numbers_that_the_plan_counts(name: str) -> None:
    """From the first piece that fills the window on; before, it has fewer keys."""
    codec = bench(name).side.codec
    planned = qwen3_codec.carried(codec.config.decoder) if name == "qwen3" else mimi.carried(codec.config)
    for side in (bench(name).side, bench(name).torch32):
        for stops, is_full in (([1], False), ([FRAMES], True), ([9, 10, FRAMES], True)):
            _, state = pieces(side, codes_of(name, batch=1), stops)
            held = sum(side.numpy(array).size for array in state[0].arrays)
            assert held == planned if is_full else held <= planned, (side.kind, stops)


@every_codec
def test_a_piece_that_fails_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever operation lacks memory, the state can be read again."""
    codes = codes_of(name)
    for side in (bench(name).torch32, bench(name).side):
        carried = side.module("layers.carried").Carried
        (wanted, _), (_, state) = pieces(side, codes, [7, 12]), pieces(side, codes, [7])
        for place in range(len(state[0].arrays)):
            with monkeypatch.context() as patch:
                patch.setattr(carried, "_leave", failing(carried._leave, place))
                with pytest.raises(MemoryError):
                    side.codec.decode_window(codes[:, :, 7:12], state)
            again, _ = side.codec.decode_window(codes[:, :, 7:12], state)
            np.testing.assert_array_equal(side.numpy(again), wanted[:, -again.shape[1] :])


@every_codec
@settings(max_examples=8)
@given(data=st.data())
def test_any_mixture_of_rows(name: str, data: st.DataObject) -> None:
    """Streams join and leave calls; each has its own samples, and its state afterwards."""
    (known, truth), done, calls = whole(name), [0] * STREAMS, list[tuple[list[int], int]]()
    while min(done) < FRAMES:
        count = data.draw(st.integers(1, FRAMES - min(done)))
        able = [row for row, frames in enumerate(done) if frames + count <= FRAMES]
        rows = data.draw(st.lists(st.sampled_from(able), min_size=1, unique=True))
        calls.append((rows, count))
        for row in rows:
            done[row] += count
    for side in (bench(name).torch64, bench(name).torch32, bench(name).side):
        made = mixture(side, codes_of(name), calls)
        where = f"{name} {side.kind} {calls}"
        if side.kind == "float64":
            np.testing.assert_allclose(
                made, truth, rtol=0, atol=1e-13 * FRAMES * np.abs(truth).max(), err_msg=where
            )
        else:
            assert_within(made, known, truth, where)


def mixture(side: CodecSide, codes: np.ndarray, calls: Sequence[tuple[list[int], int]]) -> np.ndarray:
    """Decode streams in calls, each of so many frames of some of them. → (B, L)."""
    states, done = list[Any]([None] * len(codes)), [0] * len(codes)
    made = list[list[np.ndarray]]([] for _ in codes)
    for rows, count in calls:
        read = np.stack([codes[row, :, done[row] : done[row] + count] for row in rows])
        samples, after = side.codec.decode_window(read, [states[row] for row in rows])
        for row, found, state in zip(rows, side.numpy(samples), after, strict=True):
            made[row].append(found)
            states[row], done[row] = state, done[row] + count
    return np.stack([np.concatenate(parts) for parts in made])


@every_codec
def test_a_row_has_no_memory_of_its_neighbors(name: str) -> None:
    """Nothing of a row's state reaches another, and each is memory of its own."""
    for side in (bench(name).torch32, bench(name).side):
        _, states = pieces(side, codes_of(name), [7])
        broken = [state._replace(arrays=tuple(x * np.nan for x in state.arrays)) for state in states[:-1]]
        codes = codes_of(name)[:, :, 7:9]
        wanted, _ = side.codec.decode_window(codes, states)
        found, after = side.codec.decode_window(codes, [*broken, states[-1]])
        np.testing.assert_array_equal(side.numpy(found)[-1], side.numpy(wanted)[-1])
        assert np.isnan(side.numpy(found)[:-1]).all(axis=1).any()
        assert all(np.isfinite(side.numpy(x)).all() for x in after[-1].arrays)
        if side is bench(name).torch32:
            assert all(x.untyped_storage().nbytes() == x.nbytes for state in after for x in state.arrays)


def failing(leave: Any, place: int) -> Any:
    """The method, which fails after so many calls."""
    left = iter([True] * place)

    def leave_or_fail(self: Any, array: Any) -> None:
        if not next(left, False):
            raise MemoryError
        leave(self, array)

    return leave_or_fail


def decode_next(
    side: CodecSide, host: Any, passages: Sequence[Passage], streams: Sequence[Any], **how: bool
) -> tuple[list[np.ndarray], list[DacStream]]:
    config = side.codec.config
    [fed] = {frames_fed(config, *each, **how) for each in zip(passages, streams, strict=True)}
    pending, after = launch_next(config, side.codec.decode_window, host, passages, streams, fed=fed)
    return pending.take(), after


class DacRun(NamedTuple):
    """Streams of DAC that share calls, each from a frame of its own on."""

    config: dac.DacConfig
    codes: np.ndarray  # (B, Q, F), of which a row's may be fewer
    frames: tuple[int, ...]
    stops: tuple[int, ...]

    @property
    def ahead(self) -> int:
        return dac.decode_lookahead(self.config)

    def whole(self, side: CodecSide) -> list[np.ndarray]:
        """Every row by itself, at once. → (L,) each."""
        rows = [self.codes[[row], :, :end] for row, end in enumerate(self.frames)]
        return [side.numpy(side.codec.decode_whole(side.array(row)))[0] for row in rows]

    def streamed(self, side: CodecSide) -> list[np.ndarray]:
        """All rows in calls up to each stop, and frames after their ends. → (L,) each."""
        state, made, start, last = None, [], 0, max(self.frames) + self.ahead
        for stop in (*self.stops, last):
            ends = [end if stop > end else None for end in self.frames]
            samples, state = side.codec.decode_window(self.codes[:, :, start:stop], state, ends)
            made.append(side.numpy(samples))
            start = stop
        late, every = dac.delay(self.config), np.concatenate(made, axis=1)
        lengths = [dac.decoded_length(self.config, end) for end in self.frames]
        return [samples[late : late + length] for samples, length in zip(every, lengths, strict=True)]


@pytest.mark.parametrize("name", DAC)
@settings(max_examples=8)
@given(frames=st.tuples(st.integers(1, 15), st.integers(1, 15)), cuts=st.sets(st.integers(1, 24), max_size=7))
def test_a_delayed_stream_is_the_whole(name: str, frames: tuple[int, ...], cuts: set[int]) -> None:
    """Rows of lengths of their own; what is decoded after the end of one may be any codes."""
    config, most = DAC[name], max(frames)
    ahead = dac.decode_lookahead(config)
    assert -(-dac.delay(config) // config.hop_length) == ahead
    shape = len(frames), config.n_codebooks, most + ahead
    codes = np.random.default_rng(3).integers(0, config.codebook_size, shape).astype(np.int32)
    run = DacRun(config, codes, frames, tuple(sorted(cut for cut in cuts if cut < most + ahead)))
    sides = bench_of_config(config)
    known, truths = run.whole(sides.torch32), run.whole(sides.torch64)
    for side in (sides.torch64, sides.torch32, sides.side):
        for row, (made, right, truth) in enumerate(zip(run.streamed(side), known, truths, strict=True)):
            where = f"{name} {side.kind} row {row} of {frames}, {run.stops}"
            if side.kind == "float64":
                np.testing.assert_allclose(made, truth, rtol=0, atol=1e-11, err_msg=where)
            else:
                assert_within(made, right, truth, where)


@pytest.mark.parametrize("name", DAC)
def test_delayed_streams_of_other_ages_share_a_call(name: str) -> None:
    """One goes on, one begins and one ends; the samples are those of each by itself."""
    config, sides = DAC[name], bench_of_config(DAC[name])
    ahead, first = dac.decode_lookahead(config), 3
    stop, shape = 2 * first + ahead, (3, config.n_codebooks, 2 * first + 2 * ahead + 5)
    codes = np.random.default_rng(4).integers(0, config.codebook_size, shape).astype(np.int32)
    goes, begins, ends = codes[0], codes[1], codes[2][:, :stop]

    def run(side: CodecSide) -> list[np.ndarray]:
        host = side.module("host").Host(side.codec.decoder.conv2)
        passages = [Passage(goes, 0, first), Passage(ends, 0, first)]
        before, [one, other] = decode_next(side, host, passages, [None, None])
        passages = [Passage(goes, first, stop), Passage(begins, 0, first), Passage(ends, first, stop)]
        made, after = decode_next(side, host, passages, [one, None, other])
        assert [stream.frames for stream in after] == [stop + ahead, first + ahead, stop + ahead]
        return [np.concatenate([before[0], made[0]]), made[1], np.concatenate([before[1], made[2]])]

    def whole(side: CodecSide) -> list[np.ndarray]:
        return [side.numpy(side.codec.decode_whole(side.array(one[None])))[0] for one in (goes, begins, ends)]

    known, truth = whole(sides.torch32), whole(sides.torch64)
    for side in (sides.torch64, sides.torch32, sides.side):
        for made, right, true in zip(run(side), known, truth, strict=True):
            assert_within(made, right[: len(made)], true[: len(made)], f"{name} {side.kind}")
            if side.kind == "float64":  # rounded once, to float32
                np.testing.assert_allclose(made, true[: len(made)], rtol=2**-24, atol=1e-11)


@pytest.mark.parametrize("name", DAC)
def test_a_delayed_state_has_the_numbers_that_the_plan_counts(name: str) -> None:
    sides = bench_of_config(DAC[name])
    for side in (sides.torch32, sides.side):
        _, state = side.codec.decode_window(np.zeros((2, DAC[name].n_codebooks, 1), np.int32), None)
        for row in state:
            assert sum(side.numpy(array).size for array in row.arrays) == dac.carried(DAC[name])


@pytest.mark.parametrize("which", ["torch32", "side"])
@settings(max_examples=12)
@given(
    frames=st.integers(2, 40),
    cuts=st.sets(st.integers(1, 39)),
    more=st.integers(0, 25),
    in_powers=st.booleans(),
    data=st.data(),
)
def test_passages_of_a_delayed_stream(
    which: str, frames: int, cuts: set[int], more: int, data: st.DataObject, in_powers: bool
) -> None:
    """Each is decoded as soon as enough codes are known, or the end is."""
    config = data.draw(st.sampled_from([*DAC.values()]))
    side: CodecSide = getattr(bench_of_config(config), which)
    codes = np.random.default_rng(frames).integers(0, config.codebook_size, (1, config.n_codebooks, frames))
    codes, ahead = codes.astype(np.int32), dac.decode_lookahead(config)
    host, streams = side.module("host").Host(side.codec.decoder.conv2), [None]
    stops, made = [*sorted(cut for cut in cuts if cut < frames), frames], list[np.ndarray]()
    for start, stop in zip([0, *stops], stops, strict=False):
        passage = Passage(codes[0][:, : stop + ahead + more], start, stop)
        [samples], streams = decode_next(side, host, [passage], streams, in_powers=in_powers)
        assert stop == frames or len(samples) == (stop - start) * config.hop_length
        made.append(samples)
    known, truth = (
        each.numpy(each.codec.decode_whole(each.array(codes)))[0]
        for each in (bench_of_config(config).torch32, bench_of_config(config).torch64)
    )
    assert_within(np.concatenate(made), known, truth, f"{which} {stops} of {frames}")
