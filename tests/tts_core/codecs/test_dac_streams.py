"""Calls of DAC's streams: few lengths, all of which are listed."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.tiny.networks import dac_config
from tts_core.codecs.dac import DAC_44KHZ, DacConfig, decode_lookahead
from tts_core.codecs.dac_calls import Passage
from tts_core.codecs.dac_streams import DacStream, frames_fed, shared_shapes
from tts_core.codecs.policy import CALL, ROWS, WINDOW, CodecPolicy, complete, own

HEARD = replace(own("torch-cuda"), shared=WINDOW)


def fed(config: DacConfig, policy: CodecPolicy, frames: int) -> list[int]:
    """Frames of every call of a text, as Dia's speech cuts it."""
    codes, found, at = np.zeros((1, frames), np.int32), list[int](), 0
    cuts = [*complete(policy, 0, frames - 1)]
    for start, stop in [*cuts, (cuts[-1][1], frames)]:
        passage, stream = Passage(codes, start, stop), DacStream(None, at, []) if at else None
        found.append(frames_fed(config, passage, stream, in_powers=True))
        at += found[-1]
    assert at >= frames + decode_lookahead(config)
    return found


@pytest.mark.parametrize("config", [DAC_44KHZ, dac_config()], ids=["44 kHz", "tiny"])
@pytest.mark.parametrize("policy", [HEARD, HEARD.alone()], ids=["shared", "alone"])
def test_calls_are_of_the_listed_shapes(config: DacConfig, policy: CodecPolicy) -> None:
    listed, first = shared_shapes(config, policy, ROWS), policy.served_stop(0)
    assert listed == sorted(listed, key=math.prod, reverse=True)
    assert all(rows * frames <= CALL for rows, frames in listed)
    assert len(listed) <= 27 + 5
    lengths = {frames for rows, frames in listed if rows == 1}
    for frames in range(first + 1, 400):
        assert {*fed(config, policy, frames)} <= lengths, frames
    for length in lengths:
        most = max(rows for rows, frames in listed if frames == length)
        assert most == 1 << min(ROWS, CALL // length).bit_length() - 1
    assert max(rows for rows, _ in shared_shapes(config, policy, 3)) == 2


def test_a_listener_waits_no_longer_than_for_a_window_with_context() -> None:
    policy = own("torch-cuda")
    assert HEARD.served_stop(0) + decode_lookahead(DAC_44KHZ) <= policy.first_frames + 10
