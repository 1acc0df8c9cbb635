"""Dia and DAC against vectors of the original code: every case of the golden folder, on each side.

A case's test compares everything in its files and fails if a tensor was never read.
"""

import pytest

from tests.golden.cases import Case, discover, golden_root
from tests.golden.dac_checks import check_dac, check_e2e
from tests.golden.dia_bench import Loader
from tests.golden.dia_checks import check_dia
from tests.golden.sampler_checks import check_sampler, rules_of
from tests.sides import BOTH

pytestmark = pytest.mark.golden

CASES = discover("dia")


def check(case: Case, side: str, loader: Loader) -> None:
    """Check everything in a case on one side."""
    kind = case.kind
    if kind == "sampler":
        check_sampler(case, rules_of(side))
    else:
        checks = {"dia": check_dia, "dac": check_dac, "e2e": check_e2e}
        assert kind in checks, f"{case}: kind {kind!r} has no check"
        checks[kind](case, side, loader)


if CASES:

    @pytest.mark.parametrize(
        ("case", "side"), [pytest.param(case, side, id=f"{case}/{side}") for case in CASES for side in BOTH]
    )
    def test_case(case: Case, side: str, loader: Loader) -> None:
        pytest.importorskip("torch", reason="torch is not installed: it is the oracle of both sides")
        pytest.importorskip("mlx.core" if side == "mlx" else "torch", reason=f"{side} is not installed")
        check(case, side, loader)

    def test_every_golden_file_belongs_to_a_case() -> None:
        """dia: every file of vectors belongs to a test."""
        files = (golden_root() / "dia").rglob("golden.safetensors")
        stray = [file for file in files if file.parent not in [case.folder for case in CASES]]
        assert not stray, f"never opened by a test: {', '.join(map(str, stray))}"
