"""The conformance kit, used as a stranger uses it: by its files only, here with MLX's side."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

pytest.importorskip("torch", reason="torch is not installed: it makes the kit")
pytest.importorskip("mlx.core", reason="MLX is not installed")

import mlx_port
from mlx_port.layerwise import Layerwise
from mlx_port.loading import open_parts
from mlx_port.stored import Stored, read_config
from mlx_port.stored_published import open_copied, stored_in
from tests.golden import kit
from tts_core import models
from tts_core.files.record import Record
from tts_core.nn.layer_order import Stage
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
    judged, read = 0, set()
    for number, run in enumerate(runs):
        names = {f"{number}.in.{name}": name for name in run["inputs"]}
        state = {name: arrays[at] for at, name in names.items()}
        read |= names.keys()
        side = port(folder / example / "model", run["kind"], run["part"], kit.MODELS[example])
        for place, stage in enumerate(run["stages"]):
            compared = {row: tuple(one["arrays"]) for row, one in stage["compared"].items()}
            modules = tuple(stage["modules"])
            [made] = side(Stage(stage["name"], stage["kind"], modules, compared, stage["index"]), [state])
            assert list(made) == stage["outputs"]
            expected = {name: arrays[f"{number}.{place}.{name}"] for name in made}
            read |= {f"{number}.{place}.{name}" for name in made}
            for row, one in stage["compared"].items():
                for name in one["arrays"]:
                    error = np.abs(made[name].astype(np.float64) - expected[name]).max()
                    rounding = np.spacing(np.abs(expected[name]).max())  # of the file
                    assert error <= one["bound"] + rounding, (run["part"], row, name)
                judged += 1
            state = state | expected
    assert judged > 10
    assert read == arrays.keys()


def port(place: Path, kind: str, part: str, model: str):
    """Run MLX's layers of a network from the converted folder."""
    from tts_core.nn.ladder import InputSources, ladder

    where = place / models.network(kind).folder
    parts = open_parts(place)
    given = InputSources(parts.configs, parts.documents, kit.ROWS, kit.SECONDS, kit.SEED)
    rung = next(one for one in ladder(model, given) if (one.kind, one.part) == (kind, part))
    assert models.kind_of(read_config(where, kind)) == kind
    if models.network(kind).is_copied:
        stored = stored_in(open_copied(place, kind))
    else:
        stored = Stored(kind, Record.read(place).weights(models.network(kind).folder))
    return Layerwise(rung.layers, parts.configs[kind], stored, "float32").run


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
