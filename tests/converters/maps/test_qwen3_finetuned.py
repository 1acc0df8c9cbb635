"""Folders of Qwen3-TTS's own fine-tuning script: the remains of Base are not read, the voice is found."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from converters.convert import convert
from converters.published import open_published
from tests.tiny.networks import qwen3_config
from tests.tiny.published_models import edit
from tests.tiny.qwen3 import write_published
from tests.tiny.qwen3_finetuned import write_finetuned
from tts_core import models
from tts_core.errors import CheckpointError, UsageError
from tts_core.qwen3.config import Qwen3Config, Speaker, parameter_shapes
from tts_core.qwen3.layout import named_speaker


@pytest.mark.parametrize("size", ["0b6", "1b7"])
@pytest.mark.parametrize("with_encoder", [False, True])
def test_the_section_and_the_tensors_of_its_base_are_dropped(tmp_path, size, with_encoder):
    folder = write_finetuned(tmp_path / "made", with_encoder=with_encoder, size=size)
    report = convert(open_published(folder, offline=True), tmp_path / "out")
    config = open_published(tmp_path / "out", offline=True).parts["qwen3"].config
    assert config.speaker_encoder is None
    assert config.speakers == (Speaker("Anna", 1050, None),)
    dropped = report["parts"]["qwen3"]["dropped"]
    encoder = [name for name in parameter_shapes(qwen3_config("base")) if name.startswith("speaker_encoder.")]
    assert sorted(dropped) == (sorted(encoder) if with_encoder else [])
    assert set(dropped.values()) <= {
        "left from the Base that it was made of; a model of the mode custom_voice takes no recording"
    }


def test_a_base_still_needs_its_encoder_and_no_other_tensor_is_dropped(tmp_path):
    edit(
        write_published(tmp_path / "base", "base") / "config.json",
        lambda each: each.pop("speaker_encoder_config"),
    )
    with pytest.raises(CheckpointError, match="the speaker encoder is missing"):
        open_published(tmp_path / "base", offline=True)


@pytest.mark.parametrize("asked", ["Anna", "anna", "ANNA"])
@pytest.mark.parametrize("stored", ["Anna", "anna", "ANNA"])
def test_a_voice_is_found_in_any_case_of_letters(asked, stored):
    config: Any = SimpleNamespace(speakers=(Speaker("Bo", 1, None), Speaker(stored, 2, None)))
    assert named_speaker(config, asked).id == 2


def test_of_two_voices_that_differ_by_case_the_one_as_written_is_taken():
    config: Any = SimpleNamespace(speakers=(Speaker("Anna", 1, None), Speaker("anna", 2, None)))
    assert [named_speaker(config, name).id for name in ("Anna", "anna", "ANNA")] == [1, 2, 1]
    with pytest.raises(UsageError, match="did you mean Anna"):
        named_speaker(config, "Annna")


def test_the_model_names_its_voice_in_small_letters(tmp_path: Path):
    config = open_published(write_finetuned(tmp_path / "made"), offline=True).parts["qwen3"].config
    assert isinstance(config, Qwen3Config)
    assert models.MODELS["qwen3"].of({"qwen3": config}).voices == ("anna",)
