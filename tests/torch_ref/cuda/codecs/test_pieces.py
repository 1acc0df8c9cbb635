"""Calls of streams as graphs: up to rounding those of the codec by itself, each stream from its state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.sides import ORACLE, YARDSTICK
from tests.tiny.every_codec import WEIGHTS
from tests.tolerance import assert_within
from torch_ref.cuda.codecs.windows import ReplayedWindows
from tts_core.codecs.policy import CodecPolicy, shared_shapes

pytestmark = pytest.mark.cuda
POLICY = CodecPolicy(max_frames=16).in_rows()
FRAMES = 90
STREAMS = 8


def windows() -> list[tuple[int, int]]:
    found, start = list[tuple[int, int]](), 0
    while start < FRAMES:
        stop = min(POLICY.served_stop(start), FRAMES)
        found.append((start, stop))
        start = stop
    return found


def codes_of(codec: Any) -> torch.Tensor:
    sizes = codec.config.codebook_size, (STREAMS, codec.n_codebooks, FRAMES)
    return torch.from_numpy(np.random.default_rng(0).integers(0, *sizes).astype(np.int32)).cuda()


@pytest.fixture(params=["mimi", "qwen3_codec"])
def codecs(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """A small codec in float32 and in float64."""
    weights = WEIGHTS[request.param]()
    return tuple(side.network(request.param, weights).to("cuda") for side in (YARDSTICK, ORACLE))  # type: ignore[return-value]


@pytest.mark.parametrize("seed", range(3))
def test_streams_share_graphs(codecs: tuple[Any, Any], seed: int) -> None:
    """Rows come and go, at places of their own; a shape is captured at its second time."""
    codec, _ = codecs
    codes, rng = codes_of(codec), np.random.default_rng(seed)
    pieces, beside = ReplayedWindows(codec), torch.cuda.Stream()
    states, done = list[Any]([None] * STREAMS), [0] * STREAMS
    made = list[list[torch.Tensor]]([] for _ in range(STREAMS))
    torch.cuda.synchronize()
    while min(done) < FRAMES:
        frames = min(int(rng.choice([1, 2, 4, 8])), FRAMES - min(done))
        able = [int(row) for row in rng.permutation(STREAMS) if done[row] + frames <= FRAMES]
        rows = able[: 1 << int(rng.integers(0, len(able).bit_length()))]
        with torch.cuda.stream(beside):
            read = torch.stack([codes[row, :, done[row] : done[row] + frames] for row in rows])
            samples, after = pieces(read, [states[row] for row in rows])
        for row, found, state in zip(rows, samples, after, strict=True):
            made[row].append(found)
            states[row], done[row] = state, done[row] + frames
            assert state.steps == pieces.steps * done[row]
            assert all(x.untyped_storage().nbytes() == x.nbytes for x in state.arrays)
    torch.cuda.synchronize()
    known, truth = (each.decode_window(codes, None)[0].cpu().numpy() for each in codecs)
    for row, parts in enumerate(made):
        assert_within(torch.cat(parts).cpu().numpy(), known[row], truth[row], f"row {row}")


def test_other_numbers_have_no_kernels(codecs: tuple[Any, Any]) -> None:
    _, exact = codecs
    codes = codes_of(exact)
    whole, _ = exact.decode_window(codes, None)
    pieces, states, made = ReplayedWindows(exact), None, list[torch.Tensor]()
    for start, stop in windows():
        samples, states = pieces(codes[..., start:stop], states)
        made.append(samples)
    torch.testing.assert_close(torch.cat(made, dim=1), whole, rtol=0, atol=1e-12 * float(whole.abs().max()))


def test_shared_shapes_are_captured_when_they_come_again(codecs: tuple[Any, Any]) -> None:
    codec, _ = codecs
    pieces, beside, counted = ReplayedWindows(codec), torch.cuda.Stream(), list[int]()
    fused = pieces.fused

    class Counting:
        runs, width = fused.runs, fused.width

        def __call__(self, codes: torch.Tensor, *given: Any) -> Any:
            counted.append(codes.shape[2])
            return fused(codes, *given)

    pieces.fused = Counting()  # type: ignore[assignment]
    codes = codes_of(codec)
    torch.cuda.synchronize()
    for row in range(4):
        state: Any = None
        with torch.cuda.stream(beside):
            for start, stop in windows():
                _, state = pieces(codes[row : row + 1, :, start:stop], state)
    torch.cuda.synchronize()
    for length in {stop - start for start, stop in windows()}:
        times = sum(stop - start == length for start, stop in windows())
        assert counted.count(length) == (2 if (1, length) in shared_shapes() else 4 * times), length
