"""The adapters of mlx-audio find what 0.6.2 does differently, and nothing else.

Run where mlx-audio is installed: make anywhere ONLY=mlx-audio.
"""

import json
from pathlib import Path

import pytest

from mlx_port.commands import main as cli
from tests.tiny.ports import mlx_dia, mlx_qwen3

pytestmark = pytest.mark.usefixtures("verify_here")
ENCODER, DECODER = "encoder.encoder_transformer.layers", "decoder.pre_transformer.layers"
CUT = "samples after the port's trim: [1, 2496] instead of [1, 2560]"  # two frames of 32 samples


@pytest.fixture(autouse=True)
def installed() -> None:
    pytest.importorskip("mlx_audio", reason="mlx-audio is not installed")


def report(capsys: pytest.CaptureFixture[str], *words: str | Path) -> dict:
    capsys.readouterr()
    code = cli.run(["verify", "--with", "mlx-audio", "--json", *map(str, words)])
    found = json.loads(capsys.readouterr().out)
    assert found["port"] == "mlx-audio 0.6.2"
    assert found["passed"] is (code == 0)
    return found


@pytest.mark.parametrize("name", ["base_bf16", "custom_8bit"])
def test_qwen3(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    found = report(capsys, mlx_qwen3(name, tmp_path / "model"))
    differs = [(row["part"], row["layer"]) for row in found["rows"] if not row["passed"]]
    assert differs == [
        *(("codec encoder", f"{ENCODER}.{i}.mlp") for i in (0, 1)),  # GELU by tanh
        *(("codec decoder", f"{DECODER}.{i}.self_attn") for i in (0, 1)),  # no sliding window
        ("codec decoder", CUT),  # frames whose first code is 0 are not counted
        ("codec decoder", "whole network, samples"),
        ("codec decoder", f"whole network, {CUT}"),
    ]
    parts = ["talker", "predictor", *(["speaker"] if "base" in name else []), "codec encoder"]
    assert list(dict.fromkeys(row["part"] for row in found["rows"])) == [*parts, "codec decoder"]


def test_dia(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dia, dac = mlx_dia(tmp_path)
    found = report(capsys, dia, "--codec", dac)
    assert [row["layer"] for row in found["rows"] if not row["passed"]] == []
    parts = ["dia", "dia, prepared text", "codec encoder", "codec decoder"]
    assert list(dict.fromkeys(row["part"] for row in found["rows"])) == parts
