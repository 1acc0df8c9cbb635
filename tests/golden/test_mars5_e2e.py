"""MARS5's whole runs against the original code's: codes exactly, waveforms within rounding, each side."""

import pytest

from tests.golden.cases import DEFAULT, golden_root
from tests.golden.mars5_e2e_checks import check_whole_runs, whole
from tests.sides import BOTH
from tts_core.mars5 import speaking as mars5_speaking

pytestmark = pytest.mark.golden

FOLDER = golden_root() / "mars5"

if (FOLDER / "tts_e2e.json").exists():

    @pytest.mark.parametrize("side", BOTH, ids=[f"mars5/tts_e2e/{side}" for side in BOTH])
    def test_whole_runs(side: str) -> None:
        pytest.importorskip("torch", reason="torch is not installed: it is the oracle of both sides")
        pytest.importorskip("mlx.core" if side == "mlx" else "torch", reason=f"{side} is not installed")
        check_whole_runs(FOLDER, side)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("BANDWIDTH_ID", 0, id="mars5/tts_e2e/bandwidth"),
        pytest.param("loud_span", lambda audio, trim_db: (0, len(audio) - 1), id="mars5/tts_e2e/trim"),
    ],
)
def test_mistakes_are_seen(name: str, value: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """mars5: the checks can fail; uses the committed runs."""
    pytest.importorskip("torch", reason="torch is not installed: it is the oracle of both sides")
    monkeypatch.setattr(mars5_speaking, name, value)
    whole.cache_clear()
    with pytest.raises(AssertionError, match="trimmed"):
        check_whole_runs(DEFAULT / "mars5", "torch")
    whole.cache_clear()
