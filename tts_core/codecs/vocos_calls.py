"""Vocos' decode of several pieces: windows that feed the same frames of each run in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from tts_core.codecs.policy import ONE_BY_ONE, CodecPolicy
from tts_core.codecs.vocos import VocosConfig, decode_lookahead, decode_window
from tts_core.nn.beside import Pending, Then
from tts_core.nn.host import Device


class VocosCall(NamedTuple):
    """Frames [start, stop) of the pieces at `rows`, whose first `last` frames are needed."""

    start: int
    stop: int
    last: int
    rows: tuple[int, ...]


def calls(
    config: VocosConfig, frames: Sequence[int], cuts: Callable[[int], Iterator[tuple[int, int]]], *, most: int
) -> Iterator[VocosCall]:
    """Group the windows of pieces of these lengths, each piece's in order.

    cuts: frames → windows [start, stop), in order.  most: frames that a call feeds; a piece by itself may
    feed more.
    """
    alike: dict[tuple[int, int, int, int], list[int]] = {}
    for index, count in enumerate(frames):
        for start, stop in cuts(count):
            window = decode_window(config, start, stop, count)
            alike.setdefault((start, stop, window.first, window.last), []).append(index)
    for (start, stop, first, last), indices in sorted(alike.items()):
        rows = max(1, most // (last - first))
        for at in range(0, len(indices), rows):
            yield VocosCall(start, stop, last, tuple(indices[at : at + rows]))


class Vocoder(Protocol):
    """Vocos on either side."""

    config: VocosConfig
    policy: CodecPolicy

    def decode_frames(self, codes: Any, start: int, stop: int, bandwidth_id: int) -> Any:
        """Decode frames [start, stop) of codes (B, Q, T) to samples (B, L)."""
        ...


def decode_codes(
    vocoder: Vocoder,
    host: Device,
    codes: Sequence[np.ndarray],
    cuts: Callable[[int], Iterator[tuple[int, int]]],
    bandwidth_id: int,
    *,
    check: Callable[[], None] | None = None,
) -> list[np.ndarray]:
    """Decode pieces (Q, F) to samples (L,) float32 each.

    cuts: as in `calls`.
    check: called before each call of the network; may raise.
    """
    needed = _needed(vocoder, host, codes, cuts)
    audio = []
    for call in needed:
        if check is not None:
            check()
        audio.append(host.to_host(_called(vocoder, host, codes, call, bandwidth_id)))
    return _whole(needed, audio, len(codes))


def launch_codes(
    vocoder: Vocoder,
    host: Device,
    codes: Sequence[np.ndarray],
    cuts: Callable[[int], Iterator[tuple[int, int]]],
    bandwidth_id: int,
) -> Pending[list[np.ndarray]]:
    """Begin to decode pieces, as `decode_pieces`, beside other work where the host `overlaps`."""
    needed = _needed(vocoder, host, codes, cuts)
    launched = host.launch(lambda: [_called(vocoder, host, codes, call, bandwidth_id) for call in needed])
    return Then(launched, lambda audio: _whole(needed, audio, len(codes)))


def _needed(
    vocoder: Vocoder,
    host: Device,
    codes: Sequence[np.ndarray],
    cuts: Callable[[int], Iterator[tuple[int, int]]],
) -> list[VocosCall]:
    most = most_fed(vocoder.config, vocoder.policy.max_frames, backend=host.backend)
    return [*calls(vocoder.config, [text_codes.shape[1] for text_codes in codes], cuts, most=most)]


def _called(
    vocoder: Vocoder, host: Device, codes: Sequence[np.ndarray], call: VocosCall, bandwidth_id: int
) -> Any:
    fed = np.stack([codes[index][:, : call.last] for index in call.rows])
    return vocoder.decode_frames(host.to_device(fed), call.start, call.stop, bandwidth_id)


def _whole(needed: Sequence[VocosCall], audio: Sequence[np.ndarray], pieces: int) -> list[np.ndarray]:
    made = [[np.zeros(0, np.float32)] for _ in range(pieces)]
    for call, rows in zip(needed, audio, strict=True):
        for index, row in zip(call.rows, rows, strict=True):
            made[index].append(row.astype(np.float32))
    return [np.concatenate(parts) for parts in made]


def most_fed(config: VocosConfig, largest: int, *, backend: str) -> int:
    """Count the frames to feed in one call: those of the largest window; 0 where windows run one by one."""
    return 0 if backend in ONE_BY_ONE else largest + 2 * decode_lookahead(config)
