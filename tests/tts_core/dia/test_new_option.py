"""A new option of Dia's sampling is written in four files: its declaration, and its rule three times.

A copy of the packages gets one in the three files that run here, and uses it in a separate interpreter. The
fourth is its rule in Triton.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = ("tts_core", "converters", "torch_ref", "mlx_port")
FILES = [
    "mlx_port/dia/sampling.py",
    "torch_ref/cuda/dia/draws.py",
    "torch_ref/dia/sampling.py",
    "tts_core/dia/sampling.py",
]
DECLARED = [  # after the line → these
    ("    top_k: int\n", "    ban: int = -1\n"),
    (
        "class SamplingOptions\\(SharedOptions\\):\n    .*\n",
        '    ban: int | None = option(None, "Never.", "--ban")\n',
    ),
    ("class SamplingChanges\\(SharedChanges, total=False\\):\n    .*\n", "    ban: int | None\n"),
]
RULES = {
    "torch_ref": "    cond = cond.masked_fill(torch.arange(cond.shape[-1]) == sampling.ban, -torch.inf)\n",
    "mlx_port": "    cond = mx.where(mx.arange(cond.shape[-1]) == sampling.ban, -mx.inf, cond)\n",
}
USE = """
import dataclasses, json, sys
import mlx.core as mx, numpy as np, torch
import mlx_port.dia.sampling as mlx_side, torch_ref.dia.sampling as torch_side
from mlx_port.commands.generate import generate
from tests.tiny.dia import dia_config
from tts_core.dia import config
from tts_core.dia.options import DiaOptions
from tts_core.dia.request import choose_sampling

tiny = dia_config()
assert "--ban" in [flag for one in generate.params for flag in one.opts]
assert choose_sampling(tiny, DiaOptions()).ban == -1
chosen = choose_sampling(tiny, DiaOptions(ban=2, temperature=0))
assert chosen.ban == 2
assert dict(zip(sorted(vars(chosen)), chosen.numbers))["ban"] == 2
old = json.loads(json.dumps(tiny.to_dict()))
del old["sampling"]["ban"]  # as folders that were converted before
assert config.read_converted(old) == tiny
assert config._published_sampling(tiny.sampling, {"ban": 3, "guidance_scale": 4}).ban == 3
numbers = np.random.default_rng(0).standard_normal((2, 3, 9)).astype(np.float32)
numbers[0, :, 2] = 9
for side, array in ((torch_side, torch.from_numpy), (mlx_side, mx.array)):
    cond, uncond = map(array, numbers)
    for setting, best in ((chosen, False), (dataclasses.replace(chosen, ban=-1), True)):
        drawn = np.array(side.candidates_0626(cond, uncond, setting, 7)).argmax(-1)
        assert (drawn == 2).all() == best, (side, setting, drawn)
"""


def names_in(path: Path) -> set[str]:
    """Names, attributes, arguments, keywords and strings of a file, without its docstrings."""
    found = set[str]()
    for node in ast.walk(ast.parse(path.read_text())):
        found |= {str(getattr(node, kind)) for kind in ("id", "attr", "arg") if hasattr(node, kind)}
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return found


@pytest.mark.parametrize("option", ["top_k", "top_p"])
def test_a_sampling_option_is_named_in_four_files(option: str) -> None:
    folders = [folder for package in PACKAGES for folder in (ROOT / package).rglob("dia") if folder.is_dir()]
    assert len(folders) == 7
    files = [*(file for folder in folders for file in folder.glob("*.py")), ROOT / "converters/maps/dia.py"]
    named = [str(file.relative_to(ROOT)) for file in files if option in names_in(file)]
    assert sorted(named) == FILES


@pytest.mark.rest
def test_a_new_option_is_written_in_them(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("mlx.core")
    for package in (*PACKAGES, "tests"):
        ignored = shutil.ignore_patterns("__pycache__", "data")
        shutil.copytree(ROOT / package, tmp_path / package, copy_function=os.symlink, ignore=ignored)

    def rewrite(file: str, pattern: str, added: str) -> None:
        path = tmp_path / file
        text, count = re.subn(f"({pattern})", lambda found: found[1] + added, path.read_text(), count=1)
        assert count == 1, (file, pattern)
        path.unlink()
        path.write_text(text)

    for pattern, added in DECLARED:
        rewrite("tts_core/dia/sampling.py", pattern, added)
    for side, rule in RULES.items():
        rewrite(f"{side}/dia/sampling.py", r'def candidates_0626[^"]*"""(?:.|\n)*?"""\n', rule)
    done = subprocess.run(
        [sys.executable, "-c", USE],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
