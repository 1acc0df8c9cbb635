"""Qwen3-TTS's codec against vectors of the original code: every folder, each side."""

import pytest

from tests.golden.cases import Case, discover
from tests.golden.qwen3_codec_checks import check_codec
from tests.sides import BOTH

pytestmark = pytest.mark.golden

CASES = [case for case in discover("qwen3") if case.kind == "qwen3_codec"]

if CASES:

    @pytest.mark.parametrize("side", BOTH)
    @pytest.mark.parametrize("case", CASES, ids=str)
    def test_codec(case: Case, side: str) -> None:
        pytest.importorskip("torch", reason="torch is not installed: it is the oracle of both sides")
        pytest.importorskip("mlx.core" if side == "mlx" else "torch", reason=f"{side} is not installed")
        check_codec(case, side)
