"""Vocos' decode of several pieces: windows that feed the same frames of each run in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from torch_ref.codecs.vocos import Vocos
from torch_ref.host import Host
from tts_core.codecs import vocos_calls


def decode_pieces(
    vocoder: Vocos,
    codes: Sequence[np.ndarray],
    cuts: Callable[[int], Iterator[tuple[int, int]]],
    bandwidth_id: int,
    *,
    check: Callable[[], None] | None = None,
) -> list[np.ndarray]:
    """Decode pieces (Q, F) to samples (L,) float32 each. cuts, check: see tts_core.codecs.vocos_calls."""
    host = Host(vocoder.head.out)

    def decode(fed: np.ndarray, start: int, stop: int) -> np.ndarray:
        return host.to_host(vocoder.decode_frames(host.to_device(fed), start, stop, bandwidth_id))

    most = vocos_calls.most_fed(vocoder.config, vocoder.policy.max_frames, backend=host.backend)
    return vocos_calls.decode_pieces(vocoder.config, codes, cuts, decode, most=most, check=check)
