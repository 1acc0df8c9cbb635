"""Voices fitted to models, at the bounds of what a model takes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tts_core import models
from tts_core.errors import UsageError
from tts_core.prompt import Prompt, Reference
from tts_core.serving.voices import AGREED, check_consent, fitted


@pytest.mark.parametrize(("count", "is_taken"), [(1, True), (2, True), (3, False)])
def test_a_model_takes_as_many_recordings_as_it_says(count: int, is_taken: bool) -> None:
    spec = replace(models.model("dia"), references=2, transcript="optional")
    prompt = Prompt((Reference(np.ones(8000, np.float32), "words", sample_rate=8000),) * count)
    if is_taken:
        assert len(fitted(prompt, "anna", spec).references) == count
    else:
        with pytest.raises(UsageError, match="voice: anna has 3 recordings, Dia takes 2"):
            fitted(prompt, "anna", spec)


def test_words_of_consent() -> None:
    for word in AGREED:
        check_consent(f" {word.upper()} ")
    for word in ("", "n", "I do not agree", "agreed?"):
        with pytest.raises(UsageError, match=r"consent: .* is not one of true, yes, agreed, i agree"):
            check_consent(word)
