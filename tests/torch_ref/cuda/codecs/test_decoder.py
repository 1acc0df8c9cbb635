"""Decoders of streams on kernels against the codecs' own `decode_window`, in each precision's layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.sides import ORACLE, YARDSTICK
from tests.tiny.every_codec import WEIGHTS
from tests.tolerance import assert_within
from tests.torch_ref.cuda.marks import DEVICE, kernel_marks
from torch_ref.cuda.codecs import causal
from torch_ref.cuda.codecs.causal import Activation, Memory, next_inputs
from torch_ref.cuda.codecs.decoder import FusedPieces
from torch_ref.cuda.codecs.windows import ReplayedWindows
from torch_ref.layers.carried import StreamPositions
from tts_core.nn.positions import stream_positions

pytestmark = kernel_marks()
UNITS = {"tf32": 2**-11, "bfloat16": 2**-8}  # of rounding
FRAMES = 5
CUTS = [[1, 4], [2, 2, 1]]


@pytest.fixture(params=["mimi", "qwen3_codec"])
def codecs(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """A small codec in float32 and in float64."""
    weights = WEIGHTS[request.param]()
    return tuple(side.network(request.param, weights).to(DEVICE) for side in (YARDSTICK, ORACLE))  # type: ignore[return-value]


def codes_of(codec: Any, rows: int, frames: int) -> torch.Tensor:
    sizes = codec.config.codebook_size, (rows, codec.n_codebooks, frames)
    return torch.from_numpy(np.random.default_rng(3).integers(0, *sizes).astype(np.int32)).to(DEVICE)


def places(codec: Any, starts: list[int], frames: int) -> StreamPositions:
    """Find the frames of a call in streams of `starts` frames so far."""
    pieces = ReplayedWindows(codec)
    attention, steps = pieces.attention, pieces.steps
    sizes = {"window": attention.window, "head_dim": attention.head_dim, "theta": attention.theta}
    found = stream_positions([steps * one for one in starts], steps * frames, attention.window - 1, **sizes)
    return StreamPositions(*(torch.from_numpy(one).to(DEVICE) for one in found))


def decoded(codec: Any, codes: torch.Tensor, cut: list[int]) -> torch.Tensor:
    """Decode streams that begin together in pieces of so many frames."""
    fused, start, made = FusedPieces(codec), 0, list[torch.Tensor]()
    state = torch.zeros(len(codes), fused.width, device=DEVICE)
    for frames in cut:
        piece, at = codes[:, :, start : start + frames], places(codec, [start] * len(codes), frames)
        samples, state = fused(piece, *at, state)
        made.append(samples)
        start += frames
    return torch.cat(made, dim=1)


def rounding(codec: Any, truth: torch.Tensor) -> float:
    """Bound the error of products of a few bits: each one in a row rounds its inputs and weights."""
    decoder = codec.decoder
    depth = sum(hasattr(layer, "weight") and layer.weight.dim() > 1 for layer in decoder.modules())
    return depth * 2 * UNITS[codec.precision] * float(truth.norm()) if codec.precision in UNITS else 0.0


@torch.inference_mode()
@pytest.mark.parametrize("cut", CUTS, ids=str)
@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
def test_samples(
    codecs: tuple[Any, Any], precision: Any, cut: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As near to float64 as the plain decoder, or within the rounding of the precision; in several tiles."""
    monkeypatch.setattr(causal, "TILE", 512)
    monkeypatch.setattr(causal, "KEYS", 4)
    codec, exact = codecs
    codes = codes_of(codec, 2, FRAMES)
    codec.precision = precision
    assert FusedPieces(codec).runs
    own, (plain, _), (truth, _) = (
        decoded(codec, codes, cut),
        codec.decode_window(codes, None),
        exact.decode_window(codes, None),
    )
    if precision == "float32":
        mine, theirs, right = (one.cpu().numpy() for one in (own, plain, truth))
        assert_within(mine, theirs, right, f"pieces of {cut} frames")
    else:
        limit = max(1.5 * float((plain - truth).norm()), rounding(codec, truth))
        assert 0 < float((own - truth).norm()) < limit


@torch.inference_mode()
def test_rows_at_positions_of_their_own(codecs: tuple[Any, Any]) -> None:
    """A row depends on no other one, not even on one that is not a number."""
    codec, exact = codecs
    codes, fused = codes_of(codec, 3, FRAMES), FusedPieces(codec)
    starts, states = [3, 0, 2], list[torch.Tensor]()
    for row, start in enumerate(starts):
        state = torch.zeros(1, fused.width, device=DEVICE)
        if start:
            _, state = fused(codes[row : row + 1, :, :start], *places(codec, [0], start), state)
        states.append(state)
    states[1][:] = torch.nan
    piece = torch.stack([codes[row, :, start : start + 2] for row, start in enumerate(starts)])
    own, after = fused(piece, *places(codec, starts, 2), torch.cat(states))
    for row, start in enumerate(starts):
        if row == 1:
            continue
        whole = codes[row : row + 1, :, : start + 2]
        plain, truth = (one.decode_window(whole, None)[0][0] for one in (codec, exact))
        size = 2 * codec.hop_length
        mine, theirs, right = (one.cpu().numpy()[-size:] for one in (own[row], plain, truth))
        assert_within(mine, theirs, right, f"row {row}")
        assert bool(after[row].isfinite().all())


@torch.inference_mode()
@pytest.mark.parametrize("last", [True, False], ids=["channels last", "time last"])
@pytest.mark.parametrize("kind", ["none", "elu", "snake"])
@pytest.mark.parametrize(("count", "steps"), [(0, 3), (5, 1), (5, 9)])
def test_joined(kind: Any, count: int, steps: int, *, last: bool) -> None:
    """Inputs before, sums, activations and the next state, from steps of several outputs."""
    random = torch.Generator().manual_seed(1)
    rows, phases, channels = 2, 3, 40
    length, skip, bias, slope, factor, before = (
        phases * steps,
        *(
            torch.randn(shape, generator=random).to(DEVICE)
            for shape in ((rows * phases * steps, channels), *3 * [(channels,)], (rows, count * channels + 7))
        ),
    )
    x = torch.randn(rows, steps, phases * channels, generator=random).to(DEVICE)
    x = (x if last else x.transpose(1, 2).contiguous().transpose(1, 2)).unflatten(2, (phases, channels))
    out = torch.empty(rows, channels, count + length, device=DEVICE).transpose(1, 2)
    out = torch.empty_like(out, memory_format=torch.contiguous_format) if last else out
    memory, sums = Memory(before), x.flatten(1, 2) + bias + skip.view(rows, length, channels)
    made = next_inputs(x, bias, skip, Activation(kind, slope, factor), count, memory, out, sums=True)
    assert made is not None
    assert made is skip
    torch.testing.assert_close(made.view(sums.shape), sums, rtol=0, atol=0)
    active = {"none": sums, "elu": torch.nn.functional.elu(sums)}.get(
        kind, sums + factor * (slope * sums).sin() ** 2
    )
    held = torch.cat((before[:, : count * channels].view(rows, count, channels), active), dim=1)
    torch.testing.assert_close(out, held, rtol=0, atol=1e-5)
    after = memory.after[:, : count * channels].view(rows, count, channels)
    torch.testing.assert_close(after, out[:, out.shape[1] - count :], rtol=0, atol=0)


def test_networks_that_it_leaves_to_the_plain_decoder(codecs: tuple[Any, Any]) -> None:
    assert not FusedPieces(codecs[1]).runs
