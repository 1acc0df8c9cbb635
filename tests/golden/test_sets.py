"""Sets of golden vectors other than the committed one: a single model, other files, rows of other lengths."""

from __future__ import annotations

import os
import subprocess
import sys
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.golden.cases import DEFAULT, Vectors
from tests.golden.metavoice_lm_bench import LanguageBench, language_bench
from tests.golden.metavoice_lm_checks import check_slow

TESTS = Path(__file__).parents[1]
MODELS = sorted(folder.name for folder in DEFAULT.iterdir())
LATER = 5  # ids by which one prompt is longer than the others


def test_only_the_golden_tests_follow_another_set() -> None:
    """Other tests name files of the committed set, which another set may lack."""
    followers = [
        str(file.relative_to(TESTS))
        for file in TESTS.rglob("*.py")
        if file.parent != Path(__file__).parent
        and any(name in file.read_text() for name in ("MLX_PORT_GOLDEN", "golden_root"))
    ]
    assert not followers


@pytest.mark.slow
@pytest.mark.parametrize("model", [*MODELS, "another"])
def test_a_set_of_one_model(model: str, tmp_path: Path) -> None:
    """All golden tests pass with a set of only one model, or of a model that does not exist yet."""
    (tmp_path / model).mkdir()
    if model in MODELS:
        for file in (DEFAULT / model).iterdir():
            (tmp_path / model / file.name).symlink_to(file)
    else:
        (tmp_path / model / "golden.safetensors").write_text("")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "golden", "-p", "no:cacheprovider", str(TESTS)],
        env={**os.environ, "MLX_PORT_GOLDEN": str(tmp_path)},
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout


@pytest.fixture(scope="module")
def unequal() -> LanguageBench:
    """The committed batch, with some ids that the second row generated moved into its prompt.

    Its other ids do not change; it has one margin less for each moved id.
    """
    pytest.importorskip("torch", reason="torch is not installed")
    folder = DEFAULT / "metavoice"
    bench = language_bench("torch", folder, Vectors(folder / "lm.safetensors"))
    info: dict[str, Any] = deepcopy(dict(bench.info))
    kind = "spk3"  # all its margins are safe
    rows = info["slow"][f"{kind}_kv0"]
    prompts = info["slow_meta"]["prompts"]
    prompts[1] = rows[1][: len(prompts[1]) + LATER]
    info["slow_margins"][kind][1] = info["slow_margins"][kind][1][LATER:]
    info["settings"]["slow"]["guidance"] = {kind: info["settings"]["slow"]["guidance"][kind]}
    return replace(bench, info=info, settings=info["settings"])


def test_prompts_of_unequal_length(unequal: LanguageBench) -> None:
    """A row has a margin for each id that it generates."""
    assert min(min(row) for row in unequal.info["slow_margins"]["spk3"]) > 1e-3
    check_slow(unequal)


@pytest.mark.parametrize("at", [LATER, -1], ids=["first", "last"])
def test_a_wrong_id_after_a_longer_prompt_is_seen(unequal: LanguageBench, at: int) -> None:
    info = deepcopy(dict(unequal.info))
    place = len(info["slow_meta"]["prompts"][0]) + LATER if at == LATER else -1
    for cache in ("kv0", "kv1"):
        row = info["slow"][f"spk3_{cache}"][1]
        row[place] = (row[place] + 1) % 2048
    with pytest.raises(AssertionError):
        check_slow(replace(unequal, info=info))


def test_margins_of_equal_rows_are_not_those_of_unequal_ones(unequal: LanguageBench) -> None:
    info = deepcopy(dict(unequal.info))
    info["slow_margins"]["spk3"][1] = [1.0] * len(info["slow_margins"]["spk3"][0])
    with pytest.raises(AssertionError, match="slow_margins"):
        check_slow(replace(unequal, info=info))


def test_every_margin_counts_where_it_is(unequal: LanguageBench) -> None:
    """A near-tie excuses only the id at its own place, counted from the end of the row's own prompt."""
    info, length = deepcopy(dict(unequal.info)), len(unequal.info["slow_meta"]["prompts"][1])
    info["slow_margins"]["spk3"][1][LATER + 1] = 0.0
    for cache in ("kv0", "kv1"):
        row = np.array(info["slow"][f"spk3_{cache}"])
        row[1, length + 1] = (row[1, length + 1] + 1) % 2048
        info["slow"][f"spk3_{cache}"] = row.tolist()
    with pytest.raises(AssertionError, match=f"at {length + 1}"):
        check_slow(replace(unequal, info=info))
