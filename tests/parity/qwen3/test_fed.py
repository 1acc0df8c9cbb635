"""Text that arrives while it is spoken, on both sides: speech that depends on the text only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.contract.speakers import SMALL, assert_same, every_side, speaker, windows
from tts_core.errors import UsageError
from tts_core.qwen3.options import Qwen3Options
from tts_core.results import GenerationResult, merge

pytestmark = pytest.mark.rest

VECTOR, CONTINUED = SMALL["qwen3"].voices
LONG = "The inn is near the hide. Then it thins out again. There it ends! Is it near? It is in there."
SHORT = "The inn is near. It ends. Is it in?"
PAUSED = "The inn. [pause:0.5] It ends. [pause:0.25]"


def pieces(text: str, cut: int) -> Iterator[str]:
    return (text[start : start + cut] for start in range(0, len(text), cut))


def fed(side: str, text: str, cut: int, prompt: Any = VECTOR, **options: Any) -> GenerationResult:
    return merge(
        list(speaker("qwen3", side).stream(pieces(text, cut), prompt=prompt, **{"seed": 3, **options}))
    )


@pytest.mark.parametrize(
    ("side", "text", "prompt"),
    [
        ("torch", SHORT, VECTOR),
        ("mlx", SHORT, CONTINUED),
        ("mlx", PAUSED, VECTOR),
        ("torch", PAUSED, CONTINUED),
    ],
    ids=["short, vector", "short, continued", "paused, vector", "paused, continued"],
)
def test_speech_does_not_depend_on_fragments(side: str, text: str, prompt: Any) -> None:
    """In several pieces; after a recording with its transcript every piece comes whole.

    Of one piece: tests/contract/test_sessions.py.
    """
    first, *others = (fed(side, text, cut, prompt, piece_seconds=0.4) for cut in (1, len(text)))
    assert len(first.cues) > 1
    assert first.finish_reason in ("stop", "length")
    for other in others:
        assert_same(other, first, windows=windows("qwen3"))


def test_both_sides_say_the_same() -> None:
    one, other = (fed(side, SHORT, 7, piece_seconds=0.4) for side in ("torch", "mlx"))
    np.testing.assert_array_equal(one.codes, other.codes)
    assert one.captions().vtt() == other.captions().vtt()


@every_side
def test_speech_begins_before_its_text_has_come(side: str) -> None:
    taken: list[str] = []

    def text() -> Iterator[str]:
        for piece in pieces(LONG, 4):
            taken.append(piece)
            yield piece

    stream = speaker("qwen3", side).stream(text(), prompt=VECTOR, seed=3, max_frames=200)
    next(stream)
    assert 1 < len(taken) < len(LONG) / 8
    stream.close()


@every_side
def test_the_first_sentence_comes_whole_after_a_recording_with_its_transcript(side: str) -> None:
    """Its ids are paired with the recording's frames."""
    pipeline = speaker("qwen3", side)
    session = pipeline.session(1)
    key = session.join(pipeline.request("The inn is", Qwen3Options(seed=3), CONTINUED).opened(), more=True)
    session.step()  # encodes the recording
    assert session.waiting
    session.feed(key, " near the hide. ")
    assert session.waiting
    session.feed(key, "Then")
    assert not session.waiting
    session.close()


@every_side
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (["The inn", " is <|im_end|> near."], r"^text: contains '<\|im_end\|>', which controls the model"),
        (["The inn <|im_", "end|> is near."], r"^text: contains '<\|im_end\|>'"),
        (["... ", "!"], "no words"),
        (["The inn [pause:x", "] is near."], r"\[pause\]"),
        (["The inn ", b"is near."], "a piece is b'is near.', not text"),
    ],
)
def test_text_that_cannot_be_spoken_is_refused_as_it_comes(side: str, text: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        list(speaker("qwen3", side).stream(iter(text), prompt=VECTOR, seed=3, max_frames=40))
