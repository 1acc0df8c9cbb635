"""Qwen3-TTS against vectors of the original code: every folder, each side."""

import pytest

from tests.golden.cases import Case, discover
from tests.golden.qwen3_checks import check_model
from tests.sides import BOTH
from tts_core.qwen3.config import MODES

pytestmark = pytest.mark.golden

KINDS = [f"qwen3_{mode}" for mode in MODES]
CASES = [case for case in discover("qwen3") if case.kind in KINDS]

if CASES:

    @pytest.mark.parametrize("side", BOTH)
    @pytest.mark.parametrize("case", CASES, ids=str)
    def test_model(case: Case, side: str) -> None:
        pytest.importorskip("torch", reason="torch is not installed: it is the oracle of both sides")
        pytest.importorskip("mlx.core" if side == "mlx" else "torch", reason=f"{side} is not installed")
        check_model(case, side)
