"""Limits to the character, byte and code: what has just the most is taken, one more is not."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import numpy as np
import pytest

from mlx_port.commands.serve.body import read_speech
from mlx_port.commands.serve.choose import model_options
from mlx_port.commands.serve.errors import ApiError
from mlx_port.commands.serve.fields import MOST_CODES, read_prompt
from mlx_port.commands.serve.live.messages import Messages
from mlx_port.commands.serve.names import VOICES, recording_for, speaker_for
from mlx_port.commands.serve.rest import Rest
from mlx_port.commands.serve.settings import Limits
from tts_core import models
from tts_core.prompt import Prompt

LIMITS = Limits(text=20, audio_seconds=5, message=64)


def test_characters_of_a_text_and_of_instructions() -> None:
    for name in ("input", "instructions"):
        assert read_speech({"input": "a", name: "x" * 20}, LIMITS)
        with pytest.raises(ApiError, match="21 characters; at most 20 are taken"):
            read_speech({"input": "a", name: "x" * 21}, LIMITS)


def test_seconds_of_a_speech() -> None:
    for seconds in (5, 5.0):
        asked = read_speech({"input": "a", "max_seconds": seconds}, LIMITS)
        assert model_options(asked, models.MODELS["dia"], LIMITS)["max_seconds"] == 5
    with pytest.raises(ApiError, match=r"max_seconds: 5\.001 is more than 5"):
        model_options(read_speech({"input": "a", "max_seconds": 5.001}, LIMITS), models.MODELS["dia"], LIMITS)


def test_characters_of_a_message() -> None:
    bare = len(json.dumps({"type": "text", "text": ""}))

    async def read(length: int) -> dict[str, Any]:
        text = json.dumps({"type": "text", "text": "x" * (length - bare)})

        async def receive() -> Any:
            return {"type": "websocket.receive", "text": text}

        return await Messages(receive, LIMITS).next(None)

    assert len(asyncio.run(read(64))["text"]) == 64 - bare
    with pytest.raises(ApiError, match="more than 64 bytes"):
        asyncio.run(read(65))


def prompt(**given: Any) -> Prompt:
    """Read a prompt of a body."""
    found = read_speech({"input": "a", "prompt": given}, LIMITS).prompt
    assert found is not None
    return read_prompt(found)


def test_codes_of_a_prompt() -> None:
    most = [[1] * (MOST_CODES // 2)] * 2
    codes = prompt(text="a", codes=most).one.codes
    assert codes is not None
    assert np.shape(codes) == (2, MOST_CODES // 2)
    with pytest.raises(ApiError, match="too long"):
        prompt(text="a", codes=[[1] * (MOST_CODES + 1)])
    for code, is_taken in ((65535, True), (65536, False), (0, True), (-1, False)):
        if is_taken:
            assert prompt(text="a", codes=[[code]])
        else:
            with pytest.raises(ApiError, match=r"^prompt\.codes\[0\]\[0\]: (65536 is not|-1 is) below"):
                prompt(text="a", codes=[[code]])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"path": "/etc"}, "prompt.path: no such field; did you mean prompt.text?"),
        ({"text": " "}, "prompt.text: empty"),
        ({"text": "x" * 21}, "prompt.text: 21 characters; at most 20 are taken"),
        ({"codes": []}, "prompt.codes: an empty list"),
        ({"codes": [1, 2]}, "prompt.codes[0]: not a list"),
        ({"codes": [[]]}, "prompt.codes[0]: an empty list"),
        ({"codes": [[1], [2, 3]]}, "of unequal lengths"),
        ({"codes": [[True]]}, "prompt.codes[0][0]: True is not a whole number"),
    ],
)
def test_prompts_that_cannot_be_read(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ApiError, match=re.escape(message)):
        prompt(**{"text": "x" * 20, "codes": [[1]], **change})


def test_names_of_openai_are_spread_over_the_voices() -> None:
    three = ["a", "b", "c"]
    assert [speaker_for(name, three) for name in VOICES[:5]] == ["a", "b", "c", "a", "b"]
    assert [recording_for(name, three, needed=True) for name in VOICES[:5]] == ["a", "b", "c", "a", "b"]
    assert speaker_for("b", three) == "b"
    assert speaker_for("ash", []) == "ash"


@pytest.mark.parametrize("is_asked_for", [False, True])
def test_a_body_that_was_held_back_is_dropped_once_it_was_asked_for(is_asked_for: bool) -> None:
    """A client that waits for 100-continue sends nothing before it, and everything after it."""
    pieces = [{"body": b"x", "more_body": number < 3} for number in range(4)]

    async def receive() -> Any:
        return pieces.pop(0)

    async def run() -> None:
        headers = [(b"expect", b"100-continue"), (b"content-length", b"4")]
        rest = Rest({"type": "http", "headers": headers}, receive)
        if is_asked_for:
            await rest.receive()
        await rest.drop()
        assert rest.is_left == (not is_asked_for)

    asyncio.run(run())
    assert len(pieces) == (0 if is_asked_for else 4)
