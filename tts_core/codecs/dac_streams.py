"""DAC's streams: each frame is computed once. Its samples come late, after those of the frames before it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tts_core.codecs.dac import decode_lookahead, decoded_length, delay
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


def decode_next(
    codec: Any, host: Device, passage: Passage, stream: DacStream | None
) -> tuple[np.ndarray, DacStream]:
    """Decode the next passage of a stream to samples, (L,) float32.

    stream: after the passages before; None at the start.
    """
    codes, start, stop = passage
    config, total = codec.config, codes.shape[1]
    state, frames, rest = stream or DacStream(None, 0, np.zeros(0, np.float32))
    last, ends = stop + decode_lookahead(config), None
    if last > total:  # its end is known; what is late comes with frames after it, which may be any
        codes, ends = np.pad(codes, ((0, 0), (0, last - total))), [total]

    def work() -> list[Any]:
        nonlocal state
        states = None if state is None else [state]
        samples, [state] = codec.decode_piece(host.to_device(codes[None, :, frames:last]), states, ends)
        return [samples]

    made = host.launch(work).take()[0][0]
    known = np.concatenate([rest, made[0 if frames else delay(config) :]], dtype=np.float32)
    end = decoded_length(config, total) if stop == total else stop * config.hop_length
    length = end - start * config.hop_length
    return known[:length], DacStream(state, last, known[length:])
