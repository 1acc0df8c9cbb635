"""Marks that no model reads: refused by every model with their place, in Python too."""

from __future__ import annotations

import re

import pytest

from tests.contract.speakers import every_model, given, speaker
from tts_core import models
from tts_core.errors import UsageError

SLIPS = {
    "S1] The inn is near.": ("S1]", 1),
    "(S1) The inn is near.": ("(S1)", 1),
    "The inn is near. [pause there": ("[pause", 18),
    "The inn is near. [pause:0.5 Then": ("[pause:0.5", 18),
    "The inn is near. [S2 Then it thins.": ("[S2", 18),
}


@every_model
def test_slips_are_refused_with_their_place(model: str) -> None:
    for text, (mark, place) in SLIPS.items():
        with pytest.raises(UsageError) as caught:
            speaker(model, "torch").generate(text, **given(model))
        assert str(caught.value).startswith(f"text: {mark} at character {place} "), text


@every_model
def test_the_tag_of_a_speaker_that_a_model_lacks_is_refused_with_its_place(model: str) -> None:
    for text, place in (("[S3] hi, the inn is near.", 1), ("The inn is near. [pause:1] [S3] hi.", 28)):
        with pytest.raises(UsageError, match=rf"^text: \[S3\].*at character {place}\b"):
            speaker(model, "torch").generate(text, **given(model))
    for tag in ("[S 1]", "[ s2 ]"):
        if model != "dia2":  # which reads it as the tag
            with pytest.raises(UsageError, match=rf"^text: {re.escape(tag)}.*at character 1\b"):
                speaker(model, "torch").generate(f"{tag} hi, the inn is near.", **given(model))
    if models.MODELS[model].speakers == 1:
        with pytest.raises(UsageError, match=r"^text: \[S1\] at character 1 is a speaker tag of Dia"):
            speaker(model, "torch").generate("[S1] hi, the inn is near.", **given(model))
