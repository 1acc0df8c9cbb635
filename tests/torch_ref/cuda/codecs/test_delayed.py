"""Streams of DAC on kernels against the codec's own `decode_window`, in each precision's layout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.parity.codecs.kinds import DAC
from tests.parity.codecs.kinds import bench as bench_of_config
from tests.parity.codecs.test_streams import DacRun
from tests.tolerance import assert_within
from tests.torch_ref.cuda.marks import DEVICE, kernel_marks
from torch_ref.codecs.dac import Dac
from torch_ref.cuda.codecs.causal import Activation, Inside, Memory, next_inputs
from torch_ref.cuda.codecs.delayed import FusedDelayed
from torch_ref.cuda.codecs.windows import ReplayedDelayed
from torch_ref.layers.carried import States
from tts_core.codecs import dac

pytestmark = kernel_marks()
UNITS = {"tf32": 2**-11, "bfloat16": 2**-8}  # of rounding


@pytest.fixture(autouse=True)
def beside() -> Iterator[None]:
    """Run on a stream of its own, where calls can be captured."""
    if DEVICE == "cpu":
        yield
        return
    with torch.cuda.stream(torch.cuda.Stream()):
        yield
    torch.cuda.synchronize()


@pytest.fixture(params=["dac 2-3-5", "dac 2-4"])
def codecs(request: pytest.FixtureRequest) -> tuple[Dac, Dac]:
    """A small codec with large biases, in float32 and in float64."""
    sides, random = bench_of_config(DAC[request.param]), torch.Generator().manual_seed(1)
    codec, exact = (deepcopy(side.codec).to(DEVICE) for side in (sides.torch32, sides.torch64))
    for (name, one), other in zip(codec.named_parameters(), exact.parameters(), strict=True):
        if name.endswith("bias"):
            one.data = torch.randn(one.shape, generator=random).to(one)
            other.data = one.data.double()
    return codec, exact


def side(codec: Dac, decode_window: Any) -> Any:
    """A side of the streams' checks. decode_window: as the codec's."""

    def piece(codes: np.ndarray, states: States | None, ends: Sequence[int | None]) -> Any:
        return decode_window(torch.from_numpy(np.ascontiguousarray(codes)).to(DEVICE), states, ends)

    return SimpleNamespace(
        codec=SimpleNamespace(decode_window=piece, decode_whole=codec.decode_whole),
        numpy=lambda samples: samples.cpu().numpy(),
        array=lambda codes: torch.from_numpy(codes).to(DEVICE),
    )


def run_of(config: dac.DacConfig, frames: tuple[int, ...], stops: tuple[int, ...]) -> DacRun:
    shape = len(frames), config.n_codebooks, max(frames) + dac.decode_lookahead(config)
    codes = np.random.default_rng(3).integers(0, config.codebook_size, shape).astype(np.int32)
    return DacRun(config, codes, frames, tuple(stop for stop in stops if stop < shape[2]))


@torch.inference_mode()
@pytest.mark.parametrize("stops", [(4, 12), (1, 2, 3, 5, 7, 9, 10)], ids=str)
@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
def test_a_stream_is_the_whole(codecs: tuple[Dac, Dac], precision: Any, stops: tuple[int, ...]) -> None:
    """Rows that end at other frames, in several tiles; calls of a shape that comes again are graphs."""
    codec, exact = codecs
    run = run_of(codec.config, (7, 11), stops)
    codec.precision = precision
    pieces = ReplayedDelayed(codec)
    assert pieces.fused.runs
    own = run.streamed(side(codec, pieces))
    known, truth = (run.whole(side(one, None)) for one in (codec, exact))
    for row, (mine, plain, right) in enumerate(zip(own, known, truth, strict=True)):
        if precision == "float32":
            assert_within(mine, plain, right, f"row {row}")
        else:
            depth = 2 + 7 * len(codec.config.upsampling_ratios)
            limit = depth * 2 * UNITS[precision] * np.linalg.norm(right)
            assert 0 < np.linalg.norm(mine - right) < max(1.5 * np.linalg.norm(plain - right), limit)


@torch.inference_mode()
def test_streams_of_other_ages_share_a_call(codecs: tuple[Dac, Dac]) -> None:
    """A row depends on no other one, not even on one that is not a number; one ends while others go on."""
    codec, exact = codecs
    config, pieces = codec.config, ReplayedDelayed(codec)
    ahead, hop, late = dac.decode_lookahead(config), config.hop_length, dac.delay(config)
    starts, shape = [3, 0, 2, 5], (4, config.n_codebooks, 6 + 2 * ahead)
    codes = torch.from_numpy(np.random.default_rng(4).integers(0, config.codebook_size, shape)).to(DEVICE)
    codes, ends = codes.int(), [None, None, None, 6]
    states, before = list[Any](), list[torch.Tensor]()
    for row, start in enumerate(starts):
        samples, [state] = pieces(codes[[row], :, :start], None) if start else (codes.new_zeros(1, 0), [None])
        states.append(state)
        before.append(samples[0])
    states[2].arrays[0][:] = torch.nan
    length = 2 + ahead
    piece = torch.stack([codes[row, :, start : start + length] for row, start in enumerate(starts)])
    made, after = pieces(piece, states, ends)
    assert [state.steps for state in after] == [start + length for start in starts]
    for row in (0, 1, 3):
        total = 6 if row == 3 else shape[2]
        plain, truth = (one.decode_whole(codes[[row], :, :total])[0] for one in (codec, exact))
        mine = torch.cat([before[row], made[row]])[late:]
        count = len(plain) if row == 3 else len(mine)
        assert count >= hop
        own, known, right = (one[:count].cpu().numpy() for one in (mine, plain, truth))
        assert_within(own, known, right, f"row {row}")
        assert bool(after[row].arrays[0].isfinite().all())


@torch.inference_mode()
@pytest.mark.parametrize("steps", [1, 9])
def test_sums_late_and_inside(steps: int) -> None:
    """Streams carry sums, too, and those before the start and after the end are zero."""
    random = torch.Generator().manual_seed(1)
    rows, channels, count, line = 3, 40, 6, 3
    x, given, flat = (
        torch.randn(shape, generator=random).to(DEVICE)
        for shape in ((rows, steps, 1, channels), (rows, 2 + steps, channels), (rows, 9 * channels + 5))
    )
    starts, ends = (torch.tensor(one, device=DEVICE) for one in ([0, 4, 1], [2**31 - 1, 7, 3]))
    memory, out = Memory(flat), torch.empty(rows, count + steps, channels, device=DEVICE)
    within = Inside(starts, ends, 2, 5, 1)
    summed = next_inputs(
        x, None, given.flatten(0, 1), Activation("elu"), count, memory, out, sums=True, line=line,
        within=within,
    )  # fmt: skip
    place = (2 * starts - 5)[:, None] + torch.arange(steps, device=DEVICE)
    inside = (place >= 0) & (place < (2 * ends - 1)[:, None])
    sums = torch.where(inside[:, :, None], x[:, :, 0] + given[:, :steps], 0.0)
    held, lines = flat[:, : 6 * channels].view(rows, 6, -1), flat[:, 6 * channels : -5].view(rows, 3, -1)
    held = torch.cat((held, torch.nn.functional.elu(sums)), dim=1)
    lines = torch.cat((lines, sums), dim=1)
    assert summed is not None
    torch.testing.assert_close(summed.view(lines.shape), lines, rtol=0, atol=0)
    torch.testing.assert_close(out, held, rtol=0, atol=1e-6)
    after = torch.cat((out[:, -6:], lines[:, -3:]), dim=1)
    torch.testing.assert_close(memory.after[:, :-5].view(after.shape), after, rtol=0, atol=0)


def test_a_state_is_within_the_plan(codecs: tuple[Dac, Dac]) -> None:
    """Transposed convolutions carry inputs here, elsewhere outputs."""
    codec, exact = codecs
    own, planned, ratios = (
        FusedDelayed(codec).width,
        dac.carried(codec.config),
        codec.config.upsampling_ratios,
    )
    width, more = codec.config.decoder_hidden_size, 0
    for place, stride in enumerate(ratios):
        more += (width >> place) - (width >> place + 1) * stride
    assert own == planned + more
    assert not FusedDelayed(exact).runs
