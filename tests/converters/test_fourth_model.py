"""A further model is folders of its own and one line in the list of names, and nothing else.

The folders are in tests/fourth_model. They are laid into a copy of the packages, and everything runs
there, in interpreters of its own.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.converters.folders import DAC_HF, write_safetensors

ROOT, TOY = Path(__file__).parents[2], Path(__file__).parents[1] / "fourth_model"
PACKAGES = ("tts_core", "converters", "torch_ref", "mlx_port")
WORDS = "Grüß Gott\r\n"
BEAK = np.arange(96, dtype=np.float32).reshape(32, 3)
# flags of a conversion, and the largest error of a weight: a step within a group of 32;
# bfloat16 holds whole numbers to 256
CONVERSIONS = {"plain": ([], 0), "bfloat16": (["--dtype", "bfloat16"], 0)}
CONVERSIONS["quantized"] = (["-q", "--q-group-size", "32"], 93 / 15)

Script = Callable[..., str]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages with the fourth model: links to their files, but for the list of names."""
    house = tmp_path_factory.mktemp("house")
    for package in PACKAGES:
        for source in (ROOT, TOY):
            shutil.copytree(
                source / package,
                house / package,
                copy_function=os.symlink,
                ignore=shutil.ignore_patterns("__pycache__"),
                dirs_exist_ok=True,
            )
    names = house / "tts_core/models.py"
    text, added = re.subn(r"(NAMES = \(\n(?:    .*\n)*)", r'\1    "parrot",\n', names.read_text())
    assert added == 1
    names.unlink()
    names.write_text(text)
    return house


@pytest.fixture(scope="module")
def script(house: Path) -> Script:
    """Runs Python code in the copy with arguments; returns what it printed."""

    def run(code: str, *arguments: Any) -> str:
        environment = {**os.environ, "PYTHONPATH": str(house), "HF_HUB_OFFLINE": "1"}
        command = [sys.executable, "-c", code, *map(str, arguments)]
        done = subprocess.run(
            command, cwd=house, env=environment, capture_output=True, text=True, check=False, encoding="utf-8"
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A published folder with the DAC that it shares with Dia."""
    folder = tmp_path_factory.mktemp("published")
    (folder / "config.json").write_text('{"feathers": 32}')
    tensors = {"bird.beak": BEAK, "bird.norm": np.linspace(0.5, 1.5, 32, dtype=np.float32)}
    write_safetensors(folder / "bird.safetensors", tensors, __metadata__={"words": WORDS})
    shutil.copytree(DAC_HF, folder / "voice")
    return folder


READ = """
import json, sys
import numpy as np
from converters.published import open_published
opened = open_published(sys.argv[1], offline=True)
np.save(sys.argv[2], opened.parts["parrot"].read("beak.weight"))
configs = {kind: type(part.config).__name__ for kind, part in opened.parts.items()}
print(json.dumps([opened.model, configs]))
"""
CONVERT = (
    "import sys; from mlx_port.commands.main import run; sys.exit(run(['convert', *sys.argv[1:], '--debug']))"
)


@pytest.fixture(scope="module")
def converted(
    script: Script, published: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """Converts in the way of that name, once."""
    folder = tmp_path_factory.mktemp("converted")

    def make(name: str) -> Path:
        if not (folder / name).exists():
            if name == "quantized":
                pytest.importorskip("mlx.core", reason="MLX quantizes")
            script(CONVERT, "--hf-path", published, "--mlx-path", folder / name, *CONVERSIONS[name][0])
        return folder / name

    return make


def test_it_is_recognised_and_read(script, published, tmp_path):
    model, configs = json.loads(script(READ, published, tmp_path / "beak.npy"))
    assert (model, configs) == ("parrot", {"parrot": "ParrotConfig", "dac": "DacConfig"})
    np.testing.assert_array_equal(np.load(tmp_path / "beak.npy"), BEAK.T)


def test_what_is_missing_is_named(script, published, tmp_path):
    alone = tmp_path / "alone"
    shutil.copytree(published, alone, ignore=shutil.ignore_patterns("voice"))
    code = (
        "import sys\n"
        "from converters.published import open_published\n"
        "from tts_core.errors import NotFoundError\n"
        "try: open_published(sys.argv[1], offline=True)\n"
        "except NotFoundError as fault: print(fault)"
    )
    assert "missing: weights of DAC (the codec)" in script(code, alone)
    assert "or weights of Parrot (published: birds/parrot)" in script(code, DAC_HF)


@pytest.mark.parametrize("name", CONVERSIONS)
def test_the_command_converts_it_and_reads_it_back(script, converted, tmp_path, name):
    out = converted(name)
    assert (out / "words.txt").read_bytes() == WORDS.encode()
    card = (out / "README.md").read_text()
    assert "license: cc0-1.0" in card
    assert '--text "Polly"' in card
    config = json.loads((out / "config.json").read_text())
    assert (config["model_type"], config["width"]) == ("parrot", 32)
    assert config["dtype"] == ("bfloat16" if name == "bfloat16" else "float32")
    model, configs = json.loads(script(READ, out, tmp_path / "beak.npy"))
    assert (model, configs) == ("parrot", {"parrot": "ParrotConfig", "dac": "DacConfig"})
    np.testing.assert_allclose(np.load(tmp_path / "beak.npy"), BEAK.T, rtol=0, atol=CONVERSIONS[name][1])


LOAD = """
import json, sys
import mlx.core as mx
import numpy as np
import mlx_port, torch_ref
for folder in sys.argv[1:]:
    torch_side = torch_ref.load(folder, device="cpu", dtype="float32")
    mlx_side = mlx_port.load(folder, dtype="float32")
    beak = mlx_side.network.beak
    weight = beak.weight
    if "scales" in beak:
        weight = mx.dequantize(weight, beak.scales, beak.biases, beak.group_size, beak.bits)
    here = torch_side.network.state_dict()
    print(json.dumps({
        "words": [torch_side.words, mlx_side.words],
        "codecs": [type(side.codec).__module__ for side in (torch_side, mlx_side)],
        "norm": [here["norm.weight"].tolist(), mlx_side.network.norm.weight.tolist()],
        "beak": [here["beak.weight"].tolist(), weight.tolist()],
        "quantized": "scales" in beak,
    }))
others = ("dia", "mars5", "metavoice")
print(json.dumps([name for name in sys.modules if set(name.split(".")) & set(others)]))
"""


def test_both_sides_load_it_equal(script, converted):
    """And nothing of another model is loaded for it."""
    pytest.importorskip("torch", reason="torch holds a network")
    pytest.importorskip("mlx.core", reason="MLX holds a network")
    *told, others = map(json.loads, script(LOAD, *map(converted, CONVERSIONS)).splitlines())
    for name, found in zip(CONVERSIONS, told, strict=True):
        assert found["words"] == [WORDS, WORDS]
        assert found["codecs"] == ["torch_ref.codecs.dac", "mlx_port.codecs.dac"]
        assert found["quantized"] == (name == "quantized")
        assert found["norm"][0] == found["norm"][1]
        # a code times a scale, and a bias: each rounded, or in one fused operation
        off = 4 * float(np.finfo(np.float32).eps) * 96 if found["quantized"] else 0
        np.testing.assert_allclose(*found["beak"], rtol=0, atol=off, err_msg=name)
    assert others == []


def test_help_and_doctor_name_it(script):
    code = (
        "from mlx_port.commands import doctor, main\n"
        "fault = {'fault': 'not started by this test'}\n"
        "doctor.probe = lambda sides: {side: fault for side in sides}\n"
        "assert main.run(['--help']) == 0\n"
        "print(doctor.text(doctor.examine()))"
    )
    help_text, _, page = script(code).partition("machine ")
    assert "dia, mars5, metavoice, parrot" in help_text
    [line] = [line for line in page.splitlines() if line.startswith("models ")]
    assert "MetaVoice (metavoiceio/metavoice-1B-v0.1), Parrot (birds/parrot)" in line
