"""A new option of Dia's sampling is written in four files: its declaration, and its rule three times.

A copy of the packages gets one, and uses it in a separate interpreter: its flag, folders that lack it, the
table of texts of different settings, draws on both sides and, where Triton is interpreted, the kernel.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.rest

ROOT = Path(__file__).parents[3]
PACKAGES = ("tts_core", "converters", "torch_ref", "mlx_port")
WRITTEN = {  # file → pattern, and what is added after it
    "tts_core/dia/options.py": [
        ("    top_k: int\n", "    ban: int = -1\n"),
        ('LAST = "top_k", "top_p"', ', "ban"'),
        (
            "class SamplingOptions\\(SharedOptions\\):\n    .*\n",
            '    ban: int | None = option(None, "Never.")\n',
        ),
        ("class SamplingChanges\\(SharedChanges, total=False\\):\n    .*\n", "    ban: int | None\n"),
    ],
    "torch_ref/sampling.py": [
        (
            "    guided: Tensor \\| None = None\n",
            "\n    def ban(self) -> Draw:\n"
            "        return self._keep(torch.arange(self.scores.shape[-1]) != self.table.ban)\n",
        )
    ],
    "mlx_port/sampling.py": [
        (
            "    guided: mx.array \\| None = None\n",
            "\n    def ban(self) -> Draw:\n"
            "        return self._keep(_counted(self.scores.shape[-1]) != self.table.ban)\n",
        )
    ],
    "torch_ref/cuda/sampling.py": [
        (
            "        scores = typical_kept\\(.*\n",
            '    elif RULE == "ban":\n'
            '        scores = tl.where(ids == tl.load(table.ban + at), -float("inf"), scores)\n',
        )
    ],
}
USE = """
import json
import mlx.core as mx, numpy as np, torch
import mlx_port.sampling as mlx_side, torch_ref.sampling as torch_side
from mlx_port.commands.generate import generate
from tests.tiny.networks import dia_config
from tts_core.dia import config
from tts_core.dia.options import DiaOptions
from tts_core.dia.request import choose_sampling
from tts_core.dia.options import SAMPLER_0626, allowed_ids

tiny = dia_config()
assert "--ban" in [flag for one in generate.params for flag in one.opts]
assert choose_sampling(tiny, DiaOptions()).ban == -1
chosen, other = (choose_sampling(tiny, DiaOptions(ban=ban, temperature=0)) for ban in (2, 4))
old = json.loads(json.dumps(tiny.to_dict()))
del old["sampling"]["ban"]  # as folders that were converted before
assert config.read_converted(old) == tiny
assert config._published_sampling(tiny.sampling, {"ban": 3, "guidance_scale": 4}).ban == 3
numbers = SAMPLER_0626.table([chosen, other])
assert SAMPLER_0626.named(numbers).ban.tolist() == [2, 4]
assert SAMPLER_0626.named(numbers).top_k.tolist() == [chosen.top_k] * 2
logits = np.random.default_rng(0).standard_normal((2, 2, 3, 9)).astype(np.float32)
logits[:, :, :, 2], logits[:, :, :, 4] = 9, 8
expected = [[4] * 3, [2] * 3]
allowed = allowed_ids(3, 9, 7)
for side, array in ((torch_side, torch.from_numpy), (mlx_side, mx.array)):
    table = SAMPLER_0626.named(array(numbers), 3)
    pair = [array(row) for row in logits]
    drawn = side.draw_rows(pair, table, None, SAMPLER_0626, allowed=array(allowed), end=7)
    assert drawn.tolist() == expected, (side, drawn)
from torch_ref.cuda.triton import INTERPRETED
if INTERPRETED:
    from torch_ref.cuda.sampling import DrawRows, draw_rows, own_rows
    from tests.tts_core.dia.noted import Noted, noted

    ids = torch.zeros(2, 3, dtype=torch.int32)
    rows = DrawRows(
        torch.from_numpy(logits).flatten(0, 1).flatten(1), torch.zeros(1, 2, 27),
        torch.zeros(2, dtype=torch.int64), own_rows(2, torch.device("cpu")),
        torch.from_numpy(allowed).to(torch.int8),
    )
    draw_rows(rows, torch.from_numpy(numbers), SAMPLER_0626, noted, Noted(ids, 3), channels=3, end=7)
    assert ids.tolist() == expected, ids
"""


def test_a_new_option_is_written_in_four_files(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("mlx.core")
    assert len(WRITTEN) <= 4
    for package in (*PACKAGES, "tests"):
        ignored = shutil.ignore_patterns("__pycache__", "data")
        shutil.copytree(ROOT / package, tmp_path / package, copy_function=os.symlink, ignore=ignored)
    for file, changes in WRITTEN.items():
        path = tmp_path / file
        text = path.read_text()
        for pattern, added in changes:
            text, count = re.subn(f"({pattern})", lambda found, added=added: found[1] + added, text, count=1)
            assert count == 1, (file, pattern)
        path.unlink()
        path.write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", USE],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
