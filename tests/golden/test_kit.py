"""The conformance kit, used as a stranger uses it: by its files only, here with MLX's side."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

pytest.importorskip("torch", reason="torch is not installed: it makes the kit")
pytest.importorskip("mlx.core", reason="MLX is not installed")

import mlx_port
from converters.published import open_published
from mlx_port.commands.verify.watch import side_of, trace
from mlx_port.loading import open_parts
from mlx_port.watch import unloaded
from tests.golden import kit
from tts_core import models
from tts_core.nn.probe import InputSources, probes
from tts_core.prompt import Prompt

pytestmark = pytest.mark.rest


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("kit") / "out"
    kit.write(out, tell=lambda _: None)
    return out


@pytest.fixture(params=kit.EXAMPLES)
def example(request) -> str:
    return request.param


def test_the_kit_has_every_model():
    assert set(kit.MODELS.values()) == set(models.NAMES)


def test_every_layer_is_within_its_bound(folder, example):
    arrays = load_file(folder / example / "layers.safetensors")
    runs = json.loads((folder / example / "layers.json").read_text())
    read = set()
    for number, run in enumerate(runs):
        read |= {f"{number}.in.{name}" for name in run["inputs"]}
        expected = {
            row["tensor"]: [arrays[f"{row['tensor']}.{call}"] for call in range(row["calls"])]
            for row in run["rows"]
        }
        made = port(folder / example / "model", kit.MODELS[example], number, run, expected)
        for row in run["rows"]:
            read |= {f"{row['tensor']}.{call}" for call in range(row["calls"])}
            for value, true in zip(made[row["tensor"]], expected[row["tensor"]], strict=True):
                error = np.abs(value.astype(np.float64) - true).max()
                assert error <= row["bound"] + np.spacing(np.abs(true).max()), (run["part"], row)
    assert sum(len(run["rows"]) for run in runs) > 30
    assert read == arrays.keys()


def port(place: Path, model: str, number: int, run: dict, expected: dict) -> dict:
    """Run MLX's network from the converted folder, each module going on with the kit's arrays."""
    kind = run["kind"]
    part = open_published(place, offline=True).parts[kind]
    given = open_parts(place)
    probe = probes(model, InputSources(given.configs, given.documents, kit.ROWS, kit.SECONDS, kit.SEED))[
        number
    ]
    assert (probe.kind, probe.name) == (kind, run["part"])
    at = f"{number}.row."
    truth = {name.removeprefix(at): calls for name, calls in expected.items() if name.startswith(at)}
    turned = [name for name in truth if re.fullmatch(probe.transposed, name)]
    made = trace(side_of(probe, *unloaded(probe, part, "float32"), list(truth), turned), truth)
    results = {f"{number}.out.{name}": calls for name, calls in made.results.items()}
    return {f"{at}{name}": calls for name, calls in made.outputs.items()} | results


class Replayed:
    """The numbers of a kit's file, each of which must be drawn."""

    def __init__(self, tensors):
        self.left = {name: value for name, value in tensors.items() if name.startswith("noise.")}
        self.all = dict(self.left)

    def uniform(self, step, shape):
        return self._take(f"noise.uniform.{step}", shape)

    def normal(self, row, shape):
        return self._take(f"noise.normal.{row}", shape)

    def _take(self, name, shape):
        self.left.pop(name, None)
        numbers = self.all.get(name, np.full(shape, 0.5, np.float32))  # for steps drawn ahead, past the end
        assert numbers.shape == shape
        return numbers


def test_a_generation_gives_the_same_codes(folder, example):
    tensors = load_file(folder / example / "generation.safetensors")
    facts = json.loads((folder / example / "generation.json").read_text())
    pipeline, noise, prompt = mlx_port.load(folder / example / "model"), Replayed(tensors), None
    if "reference" in tensors:
        rate, text = facts["reference_sample_rate"], facts["reference_text"]
        prompt = Prompt.of(audio=tensors["reference"], text=text, sample_rate=rate)
    result = pipeline.generate(facts["text"], prompt=prompt, noise=noise, **facts["options"])
    np.testing.assert_array_equal(result.codes, tensors["codes"])
    np.testing.assert_allclose(result.audio, tensors["audio"], atol=1e-4 * np.abs(tensors["audio"]).max())
    assert noise.left == {}
    assert (result.sample_rate, result.finish_reason) == (facts["sample_rate"], facts["finish_reason"])


def test_the_page_is_beside_the_files(folder):
    assert (folder / "README.md").read_text() == kit.PAGE.read_text()
    for file in ("layers.safetensors", "layers.json", "generation.safetensors", "generation.json"):
        assert f"`{file.partition('.')[0]}" in kit.PAGE.read_text() or file in kit.PAGE.read_text()
        assert all((folder / name / file).is_file() for name in kit.EXAMPLES)


def test_the_page_names_every_tensor(folder, example):
    page = kit.PAGE.read_text()
    for tensor in load_file(folder / example / "generation.safetensors"):
        where, dot, _ = tensor.rpartition(".")
        assert f"`{where}.N`" in page if dot else f"`{tensor}`" in page, tensor
