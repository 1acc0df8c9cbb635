"""DAC's streams: each frame is computed once. Its samples come late, after those of the frames before it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tts_core.codecs.dac import DacConfig, decode_lookahead, decoded_length, delay
from tts_core.codecs.dac_calls import Passage
from tts_core.codecs.policy import CALL, ROWS, CodecPolicy
from tts_core.nn.beside import Pending, Then
from tts_core.nn.host import Device
from tts_core.nn.windows import ceil_power


class DacStream(NamedTuple):
    """State of a stream.

    state: of the codec.
    frames: decoded so far.
    rest: samples that belong to the next passage, in a list, which has them once the call has ended.
    """

    state: Any
    frames: int
    rest: list[np.ndarray]


START = DacStream(None, 0, [np.zeros(0, np.float32)])


def frames_fed(
    config: DacConfig, passage: Passage, stream: DacStream | None, *, in_powers: bool = False
) -> int:
    """Count the frames that the next passage of a stream feeds.

    in_powers: the last one feeds a power of two: any frames may follow a text.
    """
    codes, _, stop = passage
    fed = stop + decode_lookahead(config) - (stream or START).frames
    return ceil_power(fed) if in_powers and stop == codes.shape[1] else fed


def shared_shapes(config: DacConfig, policy: CodecPolicy, rows: int) -> list[tuple[int, int]]:
    """List rows and frames of the calls that streams of windows in powers of two share, the largest first.

    rows: at most.
    """
    assert policy.shared is not None
    first = policy.served_stop(0) + decode_lookahead(config)  # waits for the delay
    frames = {first, *(1 << power for power in range(policy.shared.bit_length()))}
    shapes = [(1 << power, frame) for frame in frames for power in range(min(rows, ROWS).bit_length())]
    return sorted((shape for shape in shapes if shape[0] * shape[1] <= CALL), key=math.prod, reverse=True)


def launch_next(
    config: DacConfig,
    decode_window: Callable[..., tuple[Any, Any]],
    host: Device,
    passages: Sequence[Passage],
    streams: Sequence[DacStream | None],
    *,
    fed: int,
) -> tuple[Pending[list[np.ndarray]], list[DacStream]]:
    """Begin to decode the next passages of streams to samples, (L,) float32 each.

    decode_window: as of the codec.
    streams: after the passages before, whose results are taken first; None at the start.
    fed: frames, as `frames_fed` counts for each.
    """
    begun = [stream or START for stream in streams]
    rows, ends = list[np.ndarray](), list[int | None]()
    for (codes, _, _), stream in zip(passages, begun, strict=True):
        total, last = codes.shape[1], stream.frames + fed
        # once the end is known, what is late comes with frames after it, which may be any
        ends.append(total if last > total else None)
        rows.append(np.pad(codes, ((0, 0), (0, max(0, last - total))))[:, stream.frames : last])
    states: Sequence[Any] = [stream.state for stream in begun]

    def work() -> list[Any]:
        nonlocal states
        samples, states = decode_window(host.to_device(np.stack(rows)), states, ends)
        return [samples]

    launched = host.launch(work)
    after = [DacStream(state, stream.frames + fed, []) for state, stream in zip(states, begun, strict=True)]

    def cut(made: Sequence[np.ndarray]) -> list[np.ndarray]:
        [late], found = made, list[np.ndarray]()
        for (codes, start, stop), stream, row, then in zip(passages, begun, late, after, strict=True):
            [rest] = stream.rest
            known = np.concatenate([rest, row[0 if stream.frames else delay(config) :]], dtype=np.float32)
            end = decoded_length(config, stop) if stop == codes.shape[1] else stop * config.hop_length
            length = end - start * config.hop_length
            found.append(known[:length])
            then.rest.append(known[length:].copy())
        return found

    return Then(launched, cut), after
