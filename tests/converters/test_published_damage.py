"""MARS5 and MetaVoice with damaged or hostile files: every one is one clear line."""

import os
import pickle
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
    NAR,
    SPEAKER,
    VOCOS,
    edit,
    header,
    pickled,
    sources,
    tensors,
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


@pytest.mark.parametrize("form", ["zip", "legacy", "bare"])
@pytest.mark.parametrize(
    ("source", "place"),
    [
        *[(FIRST, place) for place in ("model", "meta", "optimizer")],
        *[(SPEAKER, "optimizer_state"), (ENCODEC, "anything"), (VOCOS / "pytorch_model.bin", "anything")],
    ],
    ids=lambda each: getattr(each, "stem", each),
)
def test_hostile_pickles_are_refused_wherever_they_hide_it(tmp_path, source, place, form):
    path, proof = tmp_path / source.name, tmp_path / "executed"
    if source.parent == VOCOS:
        shutil.copy(VOCOS / "config.yaml", tmp_path / "config.yaml")
    content = pickled(source)
    content[place] = Hostile(proof)
    if form == "bare":
        path.write_bytes(pickle.dumps(content))
    else:
        torch.save(content, path, _use_new_zipfile_serialization=form == "zip")
    for given in (path, tmp_path):
        assert "refused" in fails(CheckpointError, given)
    assert not proof.exists()
    assert runner.run(cli.convert_weights, ["--hf-path", str(path), "--offline"], debug=False) == 4


@pytest.mark.parametrize("source", [FIRST, SPEAKER, ENCODEC], ids=lambda path: path.stem)
def test_truncated_pickles(tmp_path, source):
    data = source.read_bytes()
    path = tmp_path / source.name
    for cut in sorted({0, 3, 100, *range(200, len(data), len(data) // 7), len(data) - 1}):
        path.write_bytes(data[:cut])
        assert str(path) in fails(CheckpointError, path)


@pytest.mark.parametrize("source", [AR, NAR], ids=lambda path: path.stem)
def test_truncated_safetensors(tmp_path, source):
    data = source.read_bytes()
    path = tmp_path / source.name
    start = 8 + int.from_bytes(data[:8], "little")
    for cut in (0, 7, start - 1, start, (start + len(data)) // 2, len(data) - 1):
        path.write_bytes(data[:cut])
        assert str(path) in fails(CheckpointError, path)


@pytest.mark.parametrize(
    ("name", "tensor", "said"),
    [
        ("ar.norm.weight", None, "missing: ar.norm.weight"),
        ("ar.layers.0.extra", np.ones(3, np.float16), "unexpected: ar.layers.0.extra"),
        ("ar.norm.weight", np.ones(7, np.float16), "ar.norm.weight has shape (7,)"),
        ("ar.layers.7.attention.wq.weight", np.ones((2, 2), np.float16), "ar.layers.7.attention.wq.weight"),
        ("ar.norm.weight", np.ones(128, np.int32), "ar.norm.weight"),
    ],
)
def test_mars5_tensors_that_do_not_fit(tmp_path, name, tensor, said):
    path = resave(tmp_path / "ar.safetensors", {name: tensor}, header(AR), AR)
    path.with_suffix(".json").unlink()
    assert said in fails(CheckpointError, path, parts=["mars5"])


def test_numbers_that_are_none(tmp_path):
    gain = tensors("mars5")["ar.norm.weight"].copy()
    gain[1] = np.inf
    path = resave(tmp_path / "ar.safetensors", {"ar.norm.weight": gain}, header(AR), AR)
    with pytest.raises(CheckpointError, match=r"ar\.norm\.weight contains NaN or infinite"):
        convert(open_published(path, parts=["mars5"]), tmp_path / "out")


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
