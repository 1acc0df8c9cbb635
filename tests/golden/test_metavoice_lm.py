"""MetaVoice's language models against vectors of the original code, on each side.

A case's test compares everything in its file and fails if a tensor was never read.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.golden.cases import Vectors, golden_root
from tests.golden.metavoice_lm_bench import Checkpoints, folders
from tests.golden.metavoice_lm_checks import (
    check_greedy,
    check_layout,
    check_names,
    check_sampled,
    check_sampler,
    check_slow,
    check_teacher,
)
from tests.golden.metavoice_quant_checks import check_quantised
from tests.golden.metavoice_second_checks import check_end_to_end, check_second, check_truncated
from tests.golden.metavoice_tokenizer_checks import check_tokenizer
from tests.sides import BOTH

pytestmark = pytest.mark.golden

FOLDERS = folders(golden_root())
CASES = pytest.mark.parametrize(
    ("folder", "side"),
    [pytest.param(folder, side, id=f"{folder.name}/lm/{side}") for folder in FOLDERS for side in BOTH],
)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Checkpoints]:
    return cache(lambda folder: Checkpoints(folder, tmp_path_factory.mktemp("metavoice")))


if FOLDERS:

    @CASES
    def test_language_models(folder: Path, side: str, checkpoints: Callable[[Path], Checkpoints]) -> None:
        pytest.importorskip("torch", reason="torch is not installed: it is the oracle of both sides")
        pytest.importorskip("mlx.core" if side == "mlx" else "torch", reason=f"{side} is not installed")
        vectors = Vectors(folder / "lm.safetensors")
        bench = checkpoints(folder).bench(side, vectors)
        check_names(bench)
        check_layout(bench)
        check_teacher(bench)
        check_greedy(bench)
        check_sampled(bench)
        check_sampler(bench)
        check_slow(bench)
        check_second(bench)
        check_truncated(bench)
        check_end_to_end(bench)
        vectors.assert_all_read()

    @pytest.mark.parametrize(
        "folder", [pytest.param(folder, id=f"{folder.name}/tokenizer") for folder in FOLDERS]
    )
    def test_tokenizer(folder: Path, checkpoints: Callable[[Path], Checkpoints]) -> None:
        pytest.importorskip("torch", reason="torch is not installed: the checkpoints are read with it")
        check_tokenizer(folder, checkpoints(folder).tokenizers)

    @pytest.mark.parametrize(
        "folder", [pytest.param(folder, id=f"{folder.name}/quant") for folder in FOLDERS]
    )
    def test_quantised(folder: Path) -> None:
        pytest.importorskip("mlx.core", reason="mlx is not installed: it reads the bridged numbers")
        check_quantised(folder)
