"""Streams of Mimi and of Qwen3-TTS's codec in one call, on a CPU: each as by itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from tests.sides import ORACLE, YARDSTICK, Side
from tests.tiny.mimi import mimi_config, mimi_weights
from tests.tiny.qwen3 import codec_config, codec_weights
from torch_ref.cuda.streams import decode_streams, row, stacked

WINDOWS = (1, 2, 3, 7, 7, 7, 1)  # frames; the transformers' windows are full before the last
STREAMS = 5
WEIGHTS: dict[str, Callable[[], Any]] = {
    "mimi": lambda: mimi_weights(mimi_config()),
    "qwen3_codec": lambda: codec_weights(codec_config()),
}


def codec(name: str, side: Side) -> Any:
    return side.network(name, WEIGHTS[name]())


def codes_for(made: Any) -> np.ndarray:
    shape = STREAMS, made.config.n_codebooks, sum(WINDOWS)
    return np.random.default_rng(5).integers(0, made.config.codebook_size, shape).astype(np.int32)


def windows(codes: np.ndarray) -> list[torch.Tensor]:
    return [*torch.from_numpy(codes).split(WINDOWS, dim=2)]


def alone(made: Any, codes: np.ndarray) -> torch.Tensor:
    """Decode each stream by itself. → (B, L)."""
    found = []
    for stream in range(STREAMS):
        memory, parts = None, []
        for window in windows(codes):
            samples, memory = made.decode_piece(window[stream : stream + 1], memory)
            parts.append(samples)
        found.append(torch.cat(parts, dim=1))
    return torch.cat(found)


def together(made: Any, codes: np.ndarray) -> torch.Tensor:
    """Decode streams in one call a window, but the middle one by itself every second time. → (B, L)."""
    memories: list[Any] = [None] * STREAMS
    parts, decode = [], partial(decode_streams, made.decode_piece)
    for count, window in enumerate(windows(codes)):
        samples: dict[int, torch.Tensor] = {}
        groups = [[0, 1, 2, 3, 4]] if count % 2 else [[4, 0], [2], [3, 1]]
        for group in groups:
            made_samples, kept = decode(window[group], [memories[stream] for stream in group])
            for place, stream in enumerate(group):
                samples[stream], memories[stream] = made_samples[place], kept[place]
        parts.append(torch.stack([samples[stream] for stream in range(STREAMS)]))
    return torch.cat(parts, dim=1)


@pytest.mark.parametrize("name", WEIGHTS)
def test_streams_in_one_call_sound_as_by_themselves(name: str) -> None:
    """In float32 within sixteen times what it rounds by itself, against float64; each has its own sound."""
    made, exact = codec(name, YARDSTICK), codec(name, ORACLE)
    codes = codes_for(made)
    right = alone(exact, codes)
    own = (alone(made, codes) - right).abs().max()
    eps = torch.finfo(torch.float32).eps
    assert (together(made, codes) - right).abs().max() <= 16 * own + 4 * eps
    assert (together(exact, codes) - right).abs().max() <= 1e-12
    apart = (right[1:] - right[:-1]).abs().amax(dim=1)
    assert apart.min() > 1e3 * own


@pytest.mark.parametrize("name", WEIGHTS)
def test_a_streams_memory_is_a_copy_of_its_own(name: str) -> None:
    """So that a stream that goes on keeps nothing of its neighbors in memory."""
    made = codec(name, YARDSTICK)
    codes = torch.from_numpy(codes_for(made))
    _, kept = decode_streams(made.decode_piece, codes, [None] * STREAMS)
    for memory in kept:
        for x in tensors(memory):
            assert x.shape[0] == 1
            assert x.untyped_storage().nbytes() == x.numel() * x.element_size()
    for one, other in zip(tensors(stacked(kept)), tensors(made.decode_piece(codes, None)[1]), strict=True):
        assert one.equal(other)


def test_streams_at_other_frames_are_not_stacked() -> None:
    made = codec("mimi", YARDSTICK)
    codes = torch.from_numpy(codes_for(made))[:1]
    memories = [made.decode_piece(codes[:, :, :count], None)[1] for count in (9, 10)]
    with pytest.raises(AssertionError, match="other frames"):
        stacked([memory.transformer for memory in memories])
    assert row(memories[0], 0).transformer.length == memories[0].transformer.length


def tensors(memory: Any) -> list[torch.Tensor]:
    if isinstance(memory, torch.Tensor):
        return [memory]
    return [x for part in memory for x in tensors(part)] if isinstance(memory, tuple | list) else []
