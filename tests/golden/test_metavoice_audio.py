"""MetaVoice's speaker encoder, multi-band diffusion and loudness against vectors of the original code.

A file's test compares everything in it and fails if a tensor was never read.
"""

from pathlib import Path

import pytest

from tests.golden.cases import golden_root
from tests.golden.mbd_checks import check_mbd, check_tables
from tests.golden.speaker_checks import check_speaker
from tests.golden.vocos_checks import check_default_decoder, default_cases, discover_vocos
from tests.sides import BOTH

pytestmark = pytest.mark.golden

FOLDER = golden_root() / "metavoice"
VOCOS = [file for file in discover_vocos(golden_root() / "mars5") if default_cases(file)]
TABLES = sorted(FOLDER.glob("mbd_tables*.safetensors"))  # the part of mbd.safetensors that needs no weights


def need(side: str) -> None:
    pytest.importorskip("torch", reason="torch is not installed: it is the oracle of both sides")
    pytest.importorskip("mlx.core" if side == "mlx" else "torch", reason=f"{side} is not installed")


if (FOLDER / "speaker.safetensors").exists():

    @pytest.mark.parametrize("side", [pytest.param(side, id=f"metavoice/{side}") for side in BOTH])
    def test_speaker(side: str) -> None:
        need(side)
        check_speaker(FOLDER, side)


if (FOLDER / "mbd.safetensors").exists():

    @pytest.mark.parametrize("side", [pytest.param(side, id=f"metavoice/{side}") for side in BOTH])
    def test_multi_band_diffusion(side: str) -> None:
        need(side)
        check_mbd(FOLDER, side)


if TABLES:

    @pytest.mark.parametrize("file", [pytest.param(file, id=f"metavoice/{file.stem}") for file in TABLES])
    def test_tables(file: Path) -> None:
        check_tables(FOLDER, file.stem)


if VOCOS:

    @pytest.mark.parametrize("side", [pytest.param(side, id=f"metavoice/{side}") for side in BOTH])
    @pytest.mark.parametrize("file", VOCOS, ids=lambda file: file.stem)
    def test_default_decoder(file: Path, side: str) -> None:
        """The vocoder's vectors are in MARS5's folder."""
        need(side)
        check_default_decoder(file, side)
