"""Speeches that end at max_seconds, over a WebSocket with the embedded voice."""

from __future__ import annotations

import pytest

from tests.mlx_port.commands.serve.live.client import said
from tests.mlx_port.commands.serve.served import Served


@pytest.mark.parametrize("seed", [4, 5, 11])
def test_a_limit_inside_the_last_step_ends_its_own_speech_only(embedded: Served, seed: int) -> None:
    """With these seeds one step gives two parts, and the first one fills the limit."""
    found = said(embedded, "Hi.", max_seconds=0.3, seed=seed)
    assert [event["type"] for event in found.events] == ["started", "done"]
    assert (found.events[-1]["finish_reason"], found.code) == ("length", 1000)
    assert len(found.sound) == 0.3 * 24000 * 2
    assert embedded.get("/health").status_code == 200
    assert embedded.post(input="Hi.", response_format="pcm", seed=seed).status_code == 200
