"""A small Dia2 behind the WebSocket: a text of several contexts, as a language model writes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.speakers import source, speaker
from tests.mlx_port.commands.serve.live.client import client
from tests.mlx_port.commands.serve.served import served
from tts_core.results import merge

pytestmark = pytest.mark.rest

FIRST = "[S1] This is the first turn and on and on it goes"
TEXT = (
    FIRST
    + " with you. "
    + " ".join(f"[S{2 - n}] This is turn {n}, it has words. And more." for n in range(2))
)


def test_a_text_goes_on_beyond_the_context(tmp_path: Path) -> None:
    """Its words are timed over all pieces; a limit may be longer than the context.

    Sound comes before any sentence is complete.
    """
    with served(tmp_path, {"dia2": source("dia2", "mlx")}) as server, client(server) as found:
        found.send("start", seed=3, max_seconds=600)
        for start in range(0, len(TEXT), 5):
            if start == len(FIRST) // 5 * 5:
                found.listen(2 * 1920)
            found.send("text", text=TEXT[start : start + 5])
        found.send("end")
        found.end()
    expected = merge(list(speaker("dia2", "mlx").stream([TEXT], seed=3)))
    heard = {kind: [one for one in found.events if one["type"] == kind] for kind in ("word", "piece", "done")}
    assert len(heard["piece"]) == len(expected.cues) > 1
    assert [one["text"] for one in heard["word"]] == [word.text for word in expected.words]
    assert [one["start"] for one in heard["word"]] == pytest.approx([word.start for word in expected.words])
    assert [one["finish_reason"] for one in heard["done"]] == ["stop"]
    assert len(found.sound) == 2 * len(expected.audio)
