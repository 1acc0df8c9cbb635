"""DAC's streams: each frame is computed once. Its samples come late, after those of the frames before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tts_core.codecs.dac import DacConfig, decode_lookahead, decoded_length, delay
from tts_core.codecs.dac_calls import Passage
from tts_core.nn.host import Device


class DacStream(NamedTuple):
    """State of a stream.

    state: of the codec.
    frames: decoded so far.
    rest: samples that belong to the next passage.
    """

    state: Any
    frames: int
    rest: np.ndarray


START = DacStream(None, 0, np.zeros(0, np.float32))


def frames_fed(config: DacConfig, passage: Passage, stream: DacStream | None) -> int:
    """Count the frames that the next passage of a stream feeds."""
    return passage.stop + decode_lookahead(config) - (stream or START).frames


def decode_next(
    codec: Any, host: Device, passages: Sequence[Passage], streams: Sequence[DacStream | None]
) -> tuple[list[np.ndarray], list[DacStream]]:
    """Decode the next passages of streams, which feed equally many frames, to samples, (L,) float32 each.

    streams: after the passages before; None at the start.
    """
    config, begun = codec.config, [stream or START for stream in streams]
    fed, ends = list[np.ndarray](), list[int | None]()
    for (codes, _, stop), stream in zip(passages, begun, strict=True):
        total, last = codes.shape[1], stop + decode_lookahead(config)
        # once the end is known, what is late comes with frames after it, which may be any
        ends.append(total if last > total else None)
        fed.append(np.pad(codes, ((0, 0), (0, max(0, last - total))))[:, stream.frames : last])
    states: Sequence[Any] = [stream.state for stream in begun]

    def work() -> list[Any]:
        nonlocal states
        samples, states = codec.decode_piece(host.to_device(np.stack(fed)), states, ends)
        return [samples]

    [rows] = host.launch(work).take()
    made, after = list[np.ndarray](), list[DacStream]()
    for (codes, start, stop), stream, row, state in zip(passages, begun, rows, states, strict=True):
        known = np.concatenate([stream.rest, row[0 if stream.frames else delay(config) :]], dtype=np.float32)
        end = decoded_length(config, stop) if stop == codes.shape[1] else stop * config.hop_length
        length = end - start * config.hop_length
        made.append(known[:length])
        after.append(DacStream(state, stop + decode_lookahead(config), known[length:]))
    return made, after
