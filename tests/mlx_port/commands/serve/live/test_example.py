"""The client of docs/use/live.md, as it is written there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.mlx_port.commands.serve.served import Served

PAGE = Path(__file__).parents[5] / "docs/use/live.md"


def test_the_example_runs(server: Served) -> None:
    [code] = [
        one for one in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.S) if "connect(" in one
    ]
    assert "ws://127.0.0.1:8000/" in code
    found: dict[str, Any] = {}
    exec(code.replace("ws://127.0.0.1:8000", server.url.replace("http", "ws")), found)
    kinds = [event["type"] for event in found["events"]]
    assert kinds == ["started", "piece", "piece", "done"]
    assert [event.get("text") for event in found["events"][1:3]] == [
        "Hello there, my dear friends.",
        "How are you?",
    ]
    assert len(found["sound"]) > 48_000
