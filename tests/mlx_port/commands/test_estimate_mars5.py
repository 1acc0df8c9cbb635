"""`mlx-port estimate` with MARS5: the published model and a converted folder."""

import json

import pytest

from mlx_port.commands import main as cli
from tests.tiny.mars5 import converted
from tts_core.dia.memory import BACKENDS

pytest.importorskip("torch", reason="the published pickles need torch")
PUBLISHED = "CAMB-AI/MARS5-TTS"


def run(capsys, *arguments):
    """Exit code, stdout, stderr."""
    capsys.readouterr()
    code = cli.run(["estimate", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_published_model_needs_no_files(capsys):
    code, out, err = run(capsys, "--model", PUBLISHED, "--seconds", 5, "--dtype", "float16")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "MB at the peak of a piece of 5.0 s of speech, a deep clone of 12.0 s of reference"
    assert lines[2].split() == list(BACKENDS)
    rows = {line[:14].strip(): line[14:].split() for line in lines[3:12]}
    assert rows["AR"] == ["1,526"] * 6
    assert list(rows)[-1] == "total"


def test_a_converted_folder(capsys):
    code, out, err = run(capsys, "--model", converted(), "--text", "Hello there.", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert (found["dtype"], found["quantization"]) == ("float32", None)
    assert found["job"]["frames"] == 60
    assert set(found["backends"]) == set(BACKENDS)
    four = json.loads(run(capsys, "--model", converted(), "-q", "--q-group-size", 32, "--json")[1])
    small, large = (one["backends"]["mlx-metal"]["terms"]["AR"]["bytes"] for one in (four, found))
    assert small < large


def test_one_text_at_a_time(capsys):
    code, out, err = run(capsys, "--model", PUBLISHED, "--batch", 2)
    assert (code, out, err) == (2, "", "error: batch: MARS5 speaks texts one by one; leave the flag out\n")
