"""MARS5 and MetaVoice with damaged or hostile files: every one is one clear line."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from converters import cli
from converters.convert import convert
from converters.published import open_published
from tests.converters.changed import fails, resave
from tests.tiny.published_models import (
    AR,
    ENCODEC,
    FIRST,
    SPEAKER,
    VOCOS,
    edit,
    header,
    pickled,
    sources,
)
from tts_core.command import runner
from tts_core.errors import CheckpointError, SpeechError

torch = pytest.importorskip("torch", reason="the published pickles need torch")


class Hostile:
    """Object that runs `touch` when it is unpickled without restrictions."""

    def __init__(self, target: Path):
        self.target = target

    def __reduce__(self):
        return os.system, (f"touch {self.target}",)


@pytest.mark.parametrize(
    ("source", "place"),
    [
        *[(FIRST, place) for place in ("model", "meta", "optimizer")],
        *[(SPEAKER, "optimizer_state"), (ENCODEC, "anything"), (VOCOS / "pytorch_model.bin", "anything")],
    ],
    ids=lambda each: getattr(each, "stem", each),
)
def test_hostile_pickles_are_refused_wherever_they_hide_it(tmp_path, source, place):
    """Other forms: files/test_pickles.py."""
    path, proof = tmp_path / source.name, tmp_path / "executed"
    if source.parent == VOCOS:
        shutil.copy(VOCOS / "config.yaml", tmp_path / "config.yaml")
    content = pickled(source)
    content[place] = Hostile(proof)
    torch.save(content, path)
    for given in (path, tmp_path):
        assert "refused" in fails(CheckpointError, given)
    assert not proof.exists()
    assert runner.run(cli.convert_weights, ["--hf-path", str(path), "--offline"], debug=False) == 4


def test_a_layer_of_mars5_that_does_not_fit(tmp_path):
    """Its sizes come from other tensors."""
    name = "ar.layers.7.attention.wq.weight"
    path = resave(tmp_path / "ar.safetensors", {name: np.ones((2, 2), np.float16)}, header(AR), AR)
    path.with_suffix(".json").unlink()
    assert name in fails(CheckpointError, path, parts=["mars5"])


@pytest.mark.parametrize(
    ("model", "damage", "said"),
    [
        ("mars5", lambda folder: (folder / "texttok.model").unlink(), "texttok.model: a part of the model"),
        ("mars5", lambda folder: (folder / "speechtok.model").write_bytes(b"\xff\xfe"), "speechtok.model"),
        ("mars5", lambda folder: (folder / "nar/config.json").unlink(), "config.json of MARS5 (NAR) beside"),
        (  # its tensors have published names, of a layout that needs no configuration
            "mars5",
            lambda folder: (folder / "codec/config.json").unlink(),
            "config.json of EnCodec (the codec) beside",
        ),
        ("mars5", lambda folder: edit(folder / "config.json", lambda c: c.pop("vocab_size")), "vocab_size"),
        ("mars5", lambda folder: edit(folder / "nar/config.json", lambda c: c.update(x=1)), "unknown x"),
        (
            "metavoice",
            lambda folder: (folder / "second_stage/tokenizer.json").unlink(),
            "tokenizer.json: a part of the model",
        ),
        (
            "metavoice",
            lambda folder: shutil.rmtree(folder / "speaker_encoder"),
            "missing: weights of MetaVoice (speaker encoder)",
        ),
        (
            "metavoice",
            lambda folder: edit(folder / "config.json", lambda c: c.update(model_type="mars5")),
            "two models",
        ),
    ],
)
def test_damaged_converted_folders(tmp_path, model, damage, said):
    convert(open_published(sources(model)), tmp_path / "out")
    damage(tmp_path / "out")
    assert said in fails(SpeechError, tmp_path / "out")
