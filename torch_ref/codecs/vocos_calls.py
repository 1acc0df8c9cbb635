"""Vocos' decode of several pieces: windows that feed the same frames of each run in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from torch_ref.codecs.vocos import Vocos
from torch_ref.host import Host
from tts_core.codecs.vocos_calls import calls, most_fed


def decode_pieces(
    vocoder: Vocos,
    codes: Sequence[np.ndarray],
    cuts: Callable[[int], Iterator[tuple[int, int]]],
    bandwidth_id: int,
    *,
    check: Callable[[], None] | None = None,
) -> list[np.ndarray]:
    """Decode pieces (Q, F) to samples (L,) float32 each. cuts: frames → windows.

    check: called before each call of the network; may raise.
    """
    host = Host(vocoder.head.out)
    most = most_fed(vocoder.config, vocoder.policy.max_frames, backend=host.backend)
    made = [[np.zeros(0, np.float32)] for _ in codes]
    for call in calls(vocoder.config, [one.shape[1] for one in codes], cuts, most=most):
        if check is not None:
            check()
        fed = host.to_device(np.stack([codes[place][:, : call.last] for place in call.places]))
        audio = host.to_host(vocoder.decode_frames(fed, call.start, call.stop, bandwidth_id))
        for place, row in zip(call.places, audio, strict=True):
            made[place].append(row.astype(np.float32))
    return [np.concatenate(parts) for parts in made]
