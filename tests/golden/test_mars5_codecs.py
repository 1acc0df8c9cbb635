"""EnCodec and Vocos against vectors of the original code: every file of the golden folders, each side.

A file's test compares everything in it and fails if a tensor was never read.
"""

from pathlib import Path

import pytest

from tests.golden.cases import golden_root
from tests.golden.encodec_checks import EncodecCase, check_codec_wave, check_encodec, discover_encodec
from tests.golden.vocos_checks import check_vocos, discover_vocos
from tests.sides import BOTH

pytestmark = pytest.mark.golden

MARS5, METAVOICE = golden_root() / "mars5", golden_root() / "metavoice"
ENCODEC, VOCOS = discover_encodec(MARS5), discover_vocos(MARS5)


def need(side: str) -> None:
    pytest.importorskip("torch", reason="torch is not installed: it is the oracle of both sides")
    pytest.importorskip("mlx.core" if side == "mlx" else "torch", reason=f"{side} is not installed")


if ENCODEC:

    @pytest.mark.parametrize("side", BOTH)
    @pytest.mark.parametrize("case", ENCODEC, ids=str)
    def test_encodec(case: EncodecCase, side: str) -> None:
        need(side)
        check_encodec(case, side)


if VOCOS:

    @pytest.mark.parametrize("side", BOTH)
    @pytest.mark.parametrize("file", [pytest.param(file, id=f"mars5/{file.stem}") for file in VOCOS])
    def test_vocos(file: Path, side: str) -> None:
        need(side)
        check_vocos(file, side)


if (METAVOICE / "encodec.safetensors").exists() and (METAVOICE / "mbd.safetensors").exists():

    @pytest.mark.parametrize("side", BOTH)
    def test_metavoice_codec_wave(side: str) -> None:
        need(side)
        check_codec_wave(METAVOICE, side)


def test_every_codec_file_belongs_to_a_case() -> None:
    """mars5: every file of vectors belongs to a test."""
    known = {case.name for case in ENCODEC} | {file.stem for file in VOCOS}
    files = [file for kind in ("encodec", "vocos") for file in MARS5.glob(f"{kind}*_io.safetensors")]
    stray = [file for file in files if file.stem not in known]
    assert not stray, f"never opened by a test: {', '.join(map(str, stray))}"
