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
from tts_core.codecs.policy import CAPTURED, CodecPolicy

POLICY = CodecPolicy(max_frames=16, first_frames=2)
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


def test_a_state_in_one_tensor(codec: Any) -> None:
    """What a graph runs, from a start whose keys are all zeros on."""
    pieces = ReplayedPieces(codec)
    codes, flat, state = torch.from_numpy(codes_of(codec, 0)), pieces.empty, None
    for start, stop in windows():
        places = pieces.places(codes[..., start:stop], pieces.steps * start)
        with torch.inference_mode():
            made, flat = pieces.run(codes[..., start:stop], *places, flat)
        wanted, state = codec.decode_piece(codes[..., start:stop], state)
        torch.testing.assert_close(made, wanted, rtol=0, atol=1e-12 * float(wanted.abs().max()))
        assert flat.shape == pieces.empty.shape


@pytest.mark.cuda
def test_short_pieces_are_captured_when_they_come_again(codec: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    codec.to("cuda")
    counted, decode = list[int](), codec.decode_piece

    def decode_piece(codes: torch.Tensor, *given: Any) -> Any:
        counted.append(codes.shape[2])
        return decode(codes, *given)

    monkeypatch.setattr(codec, "decode_piece", decode_piece)
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
        assert counted.count(length) == (4 * times if length > CAPTURED else 2 + first), length
