"""MARS5's diffusion against vectors that the original code made: every file of the golden folder, each side.

A file's test compares all that it holds and fails if a tensor was never read.
"""

from pathlib import Path

import pytest

from tests.golden.cases import golden_root
from tests.golden.mars5_nar_checks import CHECKS, check
from tests.golden.sides import SIDES

pytestmark = pytest.mark.golden

FILES = [file for file in sorted((golden_root() / "mars5").glob("*.safetensors")) if file.stem in CHECKS]

if FILES:

    @pytest.mark.parametrize(
        ("file", "side"),
        [pytest.param(file, side, id=f"mars5/{file.stem}/{side}") for file in FILES for side in SIDES],
    )
    def test_file(file: Path, side: str) -> None:
        pytest.importorskip("torch", reason="torch is not installed: it is the oracle of both sides")
        pytest.importorskip("mlx.core" if side == "mlx" else "torch", reason=f"{side} is not installed")
        check(file, side)

    def test_every_file_of_the_diffusion_is_looked_at() -> None:
        """mars5: no vectors of the diffusion lie where no test looks."""
        stray = [file for file in (golden_root() / "mars5").glob("*.safetensors") if _ours(file.stem)]
        assert sorted(file.stem for file in stray) == sorted(file.stem for file in FILES)


def _ours(name: str) -> bool:
    return name.startswith(("nar_", "diffusion", "trim"))
