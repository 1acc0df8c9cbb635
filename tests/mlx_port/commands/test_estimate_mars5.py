"""`mlx-port estimate` with MARS5: the published model and a converted folder."""

import json
import shutil

import pytest

from converters.published import open_published
from mlx_port.commands.estimate import read_model
from tests.mlx_port.commands.running import run as run_command
from tests.tiny.mars5 import converted
from tests.tiny.published_models import AR, NAR
from tts_core.codecs.encodec import ENCODEC_24KHZ
from tts_core.codecs.vocos import VOCOS_ENCODEC_24KHZ
from tts_core.memory.machine import BACKENDS

pytest.importorskip("torch", reason="the published pickles need torch")
PUBLISHED = "CAMB-AI/MARS5-TTS"


def run(capsys, *arguments):
    return run_command(capsys, "estimate", *arguments)


def test_a_converted_folder(capsys):
    code, out, err = run(capsys, "--model", converted(), "--text", "Hello there.", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert (found["dtype"], found["quantization"]) == ("float32", None)
    assert found["job"]["frames"] == 60
    assert set(found["backends"]) == set(BACKENDS)
    four = json.loads(
        run(capsys, "--model", converted(), "-q", "--q-bits", 4, "--q-group-size", 32, "--json")[1]
    )
    small, large = (one["backends"]["mlx-metal"]["weights"] for one in (four, found))
    assert small < large


def test_codecs_that_are_not_there_count_as_published(tmp_path):
    folder = tmp_path / "model"  # what lies beside a folder is looked at, too
    folder.mkdir()
    for file in (AR, NAR):
        shutil.copy(file, folder / file.name)
        shutil.copy(file.with_suffix(".json"), folder / file.with_suffix(".json").name)
    found = read_model(str(folder), None)
    assert (found.name, list(found.configs)) == ("mars5", ["mars5", "mars5_nar", "encodec", "vocos"])
    assert found.configs["mars5"] == open_published(AR, parts=["mars5"]).parts["mars5"].config
    assert (found.configs["encodec"], found.configs["vocos"]) == (ENCODEC_24KHZ, VOCOS_ENCODEC_24KHZ)
    assert found.dtype == open_published(AR, parts=["mars5"]).parts["mars5"].dtype


def test_a_complete_folder_is_opened_once(monkeypatch):
    folder, opened = str(converted()), []  # made before openings are counted

    def counting(*arguments, **options):
        opened.append(arguments)
        return open_published(*arguments, **options)

    monkeypatch.setattr("converters.published.open_published", counting)
    assert read_model(folder, None).name == "mars5"
    assert len(opened) == 1
