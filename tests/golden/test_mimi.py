"""Mimi against vectors of transformers' MimiModel and of kyutai's code: every folder, each side."""

import pytest

from tests.golden.cases import Case, discover
from tests.golden.mimi_checks import check_mimi
from tests.sides import BOTH

pytestmark = pytest.mark.golden

CASES = [case for case in discover("dia2") if case.kind == "mimi"]

if CASES:

    @pytest.mark.parametrize("side", BOTH)
    @pytest.mark.parametrize("case", CASES, ids=str)
    def test_mimi(case: Case, side: str) -> None:
        pytest.importorskip("torch", reason="torch is not installed: it is the oracle of both sides")
        pytest.importorskip("mlx.core" if side == "mlx" else "torch", reason=f"{side} is not installed")
        check_mimi(case, side)
