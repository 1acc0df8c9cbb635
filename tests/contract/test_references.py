"""References in models of one voice: what is no voice is refused before a network runs, with the figures."""

from typing import Any

import numpy as np
import pytest

from tests.contract.speakers import speaker
from tts_core.errors import UsageError
from tts_core.prompt import Prompt

WORDS = "[S1] These are the eight words of the recording."


def sound(seconds: float, rate: int) -> np.ndarray:
    return np.sin(np.arange(round(seconds * rate)) / 7).astype(np.float32) / 2


@pytest.mark.parametrize("model", ["dia", "mars5", "metavoice"])
@pytest.mark.parametrize(
    ("seconds", "level", "words", "message"),
    [
        (5.0, 0.0, WORDS, "the reference is silent, all zeros"),
        (0.1, 1.0, WORDS, r"0\.1 s "),
        (5.0, 1.0, "[S1] No.", r"5\.0 s do not fit a transcript of 3 characters, 0\.6 per second"),
        (
            5.0,
            1.0,
            " ".join([WORDS] * 4),
            r"5\.0 s do not fit a transcript of 175 characters, 35\.0 per second",
        ),
    ],
    ids=["silent", "short", "few words", "many words"],
)
def test_refused(model: str, seconds: float, level: float, words: str, message: str) -> None:
    pipeline = speaker(model, "torch")
    rate = pipeline.sample_rate
    said: Any = words if model == "dia" else words.replace("[S1] ", "")
    prompt = Prompt.of(audio=level * sound(seconds, rate), text=said)
    for call in (pipeline.generate, pipeline.stream):
        with pytest.raises(UsageError, match=f"^prompt: {message}"):
            call("Hello.", prompt=prompt)
    with pytest.raises(UsageError, match=f"^prompt( 1)?: {message}"):
        pipeline.generate_batch(["Hello."], prompts=[prompt])
