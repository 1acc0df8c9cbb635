"""A further model is entries of the tables, and nothing else: read, converted, quantised and loaded again."""

import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from converters import cli
from converters.maps.layouts import LAYOUTS, Found, Layout
from converters.published import open_published
from converters.rules.plan import Rule
from converters.rules.transforms import permute
from tests.converters.folders import DAC_HF, write_safetensors
from tts_core.codecs import dac
from tts_core.errors import NotFoundError
from tts_core.models import KINDS, MODELS, Kind, Model

TURN = permute((1, 0))  # this parrot is published with its axes exchanged


@dataclass(frozen=True)
class ParrotConfig:
    width: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def read_parrot(found: Found) -> ParrotConfig:
    return ParrotConfig(found.json("config.json")["feathers"])


def read_converted(config: Mapping[str, Any]) -> ParrotConfig:
    return ParrotConfig(**config)


@pytest.fixture
def parrot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Its entries, and a published folder with the DAC that it shares with Dia."""
    kind = Kind(
        title="Parrot",
        folder="",
        network="parrot.parrot:Parrot",
        parameter_shapes=lambda config: {"beak.weight": (3, config.width), "norm.weight": (config.width,)},
        read_converted=read_converted,
        stays_float32=lambda name: name.startswith("norm"),
        is_large=lambda name: name == "beak.weight",
        documents=("words.txt",),
        license="cc0-1.0",
    )
    layout = Layout(
        "parrot",
        r"bird\.",
        lambda config: [Rule("bird.beak", "beak.weight", TURN), Rule("bird.norm", "norm.weight")],
        read_parrot,
        documents=lambda found: {"words.txt": found.checkpoint.metadata["words"]},
    )
    model = Model(
        "Parrot", ("parrot",), ("parrot", "dac"), lambda configs, documents: None, call="--text Polly"
    )
    monkeypatch.setitem(KINDS, "parrot", kind)
    monkeypatch.setitem(MODELS, "parrot", model)
    monkeypatch.setitem(LAYOUTS, "parrot_wild", layout)
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "config.json").write_text('{"feathers": 32}')
    values = np.arange(96, dtype=np.float32).reshape(32, 3)
    tensors = {"bird.beak": values, "bird.norm": np.ones(32, np.float32)}
    write_safetensors(folder / "bird.safetensors", tensors, __metadata__={"words": "Grüß Gott\r\n"})
    shutil.copytree(DAC_HF, folder / "voice")
    return folder


def test_it_is_recognised_and_read(parrot):
    opened = open_published(parrot)
    assert (opened.model, list(opened.parts)) == ("parrot", ["parrot", "dac"])
    np.testing.assert_array_equal(
        opened.parts["parrot"].read("beak.weight"), np.arange(96).reshape(32, 3).T.astype(np.float32)
    )
    shutil.rmtree(parrot / "voice")
    with pytest.raises(NotFoundError, match=r"missing: weights of DAC \(the codec\)"):
        open_published(parrot, offline=True)


@pytest.mark.parametrize("flags", [[], ["--dtype", "bfloat16"], ["-q", "--q-group-size", "32"]], ids=str)
def test_the_command_converts_it_and_reads_it_back(parrot, tmp_path, flags):
    if "-q" in flags:
        pytest.importorskip("mlx.core", reason="MLX quantises")
    out = tmp_path / "out"
    arguments = ["--hf-path", str(parrot), "--mlx-path", str(out), *flags]
    assert cli.run(cli.convert_weights, arguments, debug=True) == 0
    assert (out / "words.txt").read_bytes() == "Grüß Gott\r\n".encode()
    assert "license: cc0-1.0" in (out / "README.md").read_text()
    again = open_published(out)
    assert again.parts["parrot"].config == ParrotConfig(32)
    assert isinstance(again.parts["dac"].config, dac.DacConfig)
    exact = open_published(parrot).parts["parrot"].read("beak.weight")
    error = 93 / 15 if "-q" in flags else 0  # one step within a group; bfloat16 holds whole numbers to 256
    np.testing.assert_allclose(again.parts["parrot"].read("beak.weight"), exact, rtol=0, atol=error)
    config = json.loads((out / "config.json").read_text())
    assert config["model_type"] == "parrot"


def test_both_loaders_call_its_own_assemble(parrot, tmp_path, monkeypatch):
    torch = pytest.importorskip("torch", reason="torch holds a network")
    pytest.importorskip("mlx.core", reason="MLX holds a network")
    from mlx import nn

    import mlx_port
    import torch_ref

    class Parrot(torch.nn.Module):
        def __init__(self, config: ParrotConfig):
            super().__init__()
            self.beak = torch.nn.Linear(config.width, 3, bias=False)
            self.norm = torch.nn.RMSNorm(config.width)

    class MlxParrot(nn.Module):
        def __init__(self, config: ParrotConfig):
            super().__init__()
            self.beak, self.norm = nn.Linear(config.width, 3, bias=False), nn.RMSNorm(config.width)

    for side, network in (("torch_ref", Parrot), ("mlx_port", MlxParrot)):
        loading, module = ModuleType(f"{side}.parrot.loading"), ModuleType(f"{side}.parrot.parrot")
        vars(loading)["assemble"] = lambda parts: (
            parts.network("parrot"),
            parts.documents["parrot"]["words.txt"],
        )
        vars(module)["Parrot"] = network
        monkeypatch.setitem(sys.modules, f"{side}.parrot", ModuleType(f"{side}.parrot"))
        monkeypatch.setitem(sys.modules, loading.__name__, loading)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    arguments = ["--hf-path", str(parrot), "--mlx-path", str(tmp_path / "out")]
    assert cli.run(cli.convert_weights, arguments, debug=True) == 0
    on_torch, words = torch_ref.load(parrot, device="cpu", dtype="float32")
    on_mlx, same = mlx_port.load(tmp_path / "out")
    assert words == same == "Grüß Gott\r\n"
    np.testing.assert_array_equal(np.array(on_mlx.beak.weight), on_torch.beak.weight.detach().numpy())
