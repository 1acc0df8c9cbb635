"""The map of Dia2 on small published folders; at full size: test_full_size.py."""

import json
import re

import numpy as np
import pytest

from converters.maps.dia2 import rules
from converters.published import open_published
from converters.rules.assignment import assigned
from tests.tiny.dia2 import published_dia2
from tests.tiny.networks import dia2_config
from tts_core.dia2.config import parameter_shapes
from tts_core.errors import CheckpointError, SpeechError


def test_sets_of_weights_close_the_gaps_of_the_schedule():
    """Ids 0, 2 and 5 become 0, 1 and 2; a set that no stage uses is not silently left out."""
    config = dia2_config()
    renamed = {"1": "2", "2": "5"}

    def theirs(name: str) -> str:
        return re.sub(
            r"(depformer_in|in_proj|out_proj)\.(\d)\.",
            lambda found: f"{found[1]}.{renamed.get(found[2], found[2])}.",
            name,
        )

    shapes = {theirs(name): shape for name, shape in parameter_shapes(config).items()}
    moves = assigned(rules(config), shapes, parameter_shapes(config))
    assert {move.target: move.sources[0] for move in moves} == {
        name: theirs(name) for name in parameter_shapes(config)
    }
    with pytest.raises(CheckpointError, match=r"unexpected: depformer\.depformer_in\.3\.weight"):
        assigned(
            rules(config), shapes | {"depformer.depformer_in.3.weight": (12, 20)}, parameter_shapes(config)
        )


def test_a_published_folder_is_read(tmp_path):
    found = open_published(published_dia2(tmp_path / "dia2"))
    assert (found.model, list(found.parts)) == ("dia2", ["dia2", "mimi"])
    part = found.parts["dia2"]
    assert part.config.text_bos_id == 1  # the tokenizer's is 0
    assert list(part.documents) == ["tokenizer.json"]
    assert np.isfinite(part.read("transformer.cb0_head.weight")).all()
    found.check_fits()


def test_the_list_of_files_is_checked(tmp_path):
    """As published it agrees; a list that names other files would be passed over."""
    folder = published_dia2(tmp_path / "dia2")
    listed = {"config": "config.json", "weights": "model.safetensors"}
    listed |= {"tokenizer": "nari-labs/Dia2-2B", "mimi": "kyutai/mimi"}
    file = folder / "dia2_assets.json"
    file.write_text(json.dumps(listed))
    assert open_published(folder).model == "dia2"
    for name, value in (("weights", "other.safetensors"), ("mimi", "me/mimi"), ("vocoder", "x")):
        file.write_text(json.dumps({**listed, name: value}))
        with pytest.raises(CheckpointError, match=rf"dia2_assets.json: '?{name}"):
            open_published(folder)


@pytest.mark.parametrize(
    ("file", "named"),
    [
        ("tokenizer.json", "tokenizer.json: a part of the model, but not there"),
        ("config.json", "config.json of Dia2 beside"),
        ("codec/config.json", r"config.json of Mimi \(the codec\) beside"),
    ],
)
def test_a_missing_file_is_named(tmp_path, file, named):
    folder = published_dia2(tmp_path / "dia2")
    (folder / file).unlink()
    with pytest.raises(SpeechError, match=named):
        open_published(folder, offline=True)
