"""Pieces of streams as graphs: up to rounding those of the codec by itself, each stream from its state."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from tests.sides import ORACLE
from tests.tiny.every_codec import WEIGHTS
from torch_ref.cuda.codecs.pieces import ReplayedPieces
from tts_core.codecs.policy import CodecPolicy, shared_shapes

POLICY = CodecPolicy(max_frames=16).in_rows()
FRAMES = 90
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]


def windows() -> list[tuple[int, int]]:
    found, start = list[tuple[int, int]](), 0
    while start < FRAMES:
        stop = min(POLICY.served_stop(start), FRAMES)
        found.append((start, stop))
        start = stop
    return found


def codes_of(codec: Any, seed: int) -> np.ndarray:
    sizes = codec.config.codebook_size, (1, codec.n_codebooks, FRAMES)
    return np.random.default_rng(seed).integers(0, *sizes).astype(np.int32)


@pytest.fixture(params=["mimi", "qwen3_codec"])
def codec(request: pytest.FixtureRequest) -> Any:
    return ORACLE.network(request.param, WEIGHTS[request.param]())


@pytest.mark.parametrize("device", DEVICES)
def test_streams_by_turns_are_those_alone(codec: Any, device: str) -> None:
    codec.to(device)
    pieces, beside = ReplayedPieces(codec), torch.cuda.Stream() if device == "cuda" else None
    streams = [torch.from_numpy(codes_of(codec, seed)).to(device) for seed in range(3)]
    kept, alone = list[Any]([None] * len(streams)), list[Any]([None] * len(streams))
    for start, stop in windows():
        for number, codes in enumerate(streams):
            wanted, alone[number] = codec.decode_piece(codes[..., start:stop], alone[number])
            work = partial(pieces, codes[..., start:stop], kept[number])
            if beside is None:
                made, kept[number] = work()
            else:
                with torch.cuda.stream(beside):
                    beside.wait_stream(torch.cuda.default_stream())
                    made, kept[number] = work()
                torch.cuda.default_stream().wait_stream(beside)
            torch.testing.assert_close(made, wanted, rtol=0, atol=1e-12 * float(wanted.abs().max()))
    assert [state.steps for [state] in kept] == [state.steps for [state] in alone]


def test_states_in_one_tensor(codec: Any) -> None:
    """What a graph runs: rows at places of their own, from a start whose keys are all zeros on."""
    pieces = ReplayedPieces(codec)
    early, late = (torch.from_numpy(codes_of(codec, seed)) for seed in range(2))
    _, state = codec.decode_piece(early[..., :16], None)
    with torch.inference_mode():
        _, begun = pieces.run(early[..., :16], *pieces.places(early[..., :16], [0]), pieces.empty)
    flat, states = torch.cat((begun, pieces.empty)), [state[0], None]
    for start, stop in windows()[:-10]:
        codes = torch.cat((early[..., 16 + start : 16 + stop], late[..., start:stop]))
        places = pieces.places(codes, [pieces.steps * (16 + start), pieces.steps * start])
        with torch.inference_mode():
            made, flat = pieces.run(codes, *places, flat)
        wanted, states = codec.decode_piece(codes, states)
        torch.testing.assert_close(made, wanted, rtol=0, atol=1e-12 * float(wanted.abs().max()))
        assert flat.shape == (2, *pieces.empty.shape[1:])


@pytest.mark.cuda
@pytest.mark.parametrize("seed", range(2))
def test_streams_share_graphs(codec: Any, seed: int) -> None:
    """Rows come and go, at places of their own; each shape is captured at its second time."""
    codec.to("cuda")
    rng, pieces, beside = np.random.default_rng(seed), ReplayedPieces(codec), torch.cuda.Stream()
    codes = [torch.from_numpy(codes_of(codec, number)).cuda() for number in range(8)]
    states, alone, done = [None] * 8, [None] * 8, [0] * 8
    torch.cuda.synchronize()
    for _ in range(150):
        frames = int(rng.choice([1, 2, 4, 8]))
        able = [row for row in rng.permutation(8) if done[row] + frames <= FRAMES]
        rows = able[: 1 << int(rng.integers(0, 4))]
        rows = rows[: 1 << (len(rows).bit_length() - 1)] if rows else []
        if not rows:
            done, states, alone = [0] * 8, [None] * 8, [None] * 8
            continue
        read = torch.cat([codes[row][..., done[row] : done[row] + frames] for row in rows])
        torch.cuda.synchronize()
        with torch.cuda.stream(beside):
            made, after = pieces(read, [states[row] for row in rows])
        torch.cuda.synchronize()
        wanted, known = codec.decode_piece(read, [alone[row] for row in rows])
        torch.testing.assert_close(made, wanted, rtol=0, atol=1e-12 * float(wanted.abs().max()))
        for row, new, state in zip(rows, after, known, strict=True):
            states[row], alone[row], done[row] = new, state, done[row] + frames
            assert new.steps == state.steps


@pytest.mark.cuda
def test_short_pieces_are_captured_when_they_come_again(codec: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    codec.to("cuda")
    counted, books = list[int](), codec.quantizer if hasattr(codec, "quantizer") else codec.decoder.quantizer
    decode = books.decode

    def counting(codes: torch.Tensor) -> torch.Tensor:
        counted.append(codes.shape[2])
        return decode(codes)

    monkeypatch.setattr(books, "decode", counting)
    pieces, beside = ReplayedPieces(codec), torch.cuda.Stream()
    for seed in range(4):
        codes, state = torch.from_numpy(codes_of(codec, seed)).cuda(), None
        torch.cuda.synchronize()
        with torch.cuda.stream(beside):
            for start, stop in windows():
                _, state = pieces(codes[..., start:stop], state)
    torch.cuda.synchronize()
    for length in {stop - start for start, stop in windows()}:
        times = sum(stop - start == length for start, stop in windows())
        first = length == 1  # the state of a start has its shapes
        captured = (1, length) in shared_shapes()
        assert counted.count(length) == (2 + first if captured else 4 * times), length
