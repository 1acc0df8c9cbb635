"""A network run layer by layer: equal to the whole network in MLX, with one layer at a time in memory."""

import gc
import weakref
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

import mlx_port
from converters.convert import convert
from converters.published import ModelPart, open_published
from mlx_port.commands.verify.run import trace
from mlx_port.layerwise import Layerwise
from mlx_port.stored import Stored
from tests.converters.folders import DAC, V_V01
from tests.tolerance import bound
from torch_ref.layerwise import Layerwise as TorchLayerwise
from tts_core.codecs import dac
from tts_core.codecs.dac_layers import DacLayers
from tts_core.dia.config import DiaConfig
from tts_core.dia.ladder import dia_state
from tts_core.dia.layer_order import dia_stages
from tts_core.dia.layers import DiaLayers
from tts_core.nn.ladder import InputSources, no_codes, signal
from tts_core.voice.embedded import CODEC, DIA


@pytest.fixture(scope="module")
def source():
    return open_published(V_V01, codec=DAC)


@pytest.fixture(scope="module")
def folder(source, tmp_path_factory):
    path = tmp_path_factory.mktemp("layers") / "model"
    convert(source, path)
    return path


@pytest.fixture(scope="module")
def voice(tmp_path_factory):
    """The embedded voice: 66 MB in float32, its largest layer 8."""
    path = tmp_path_factory.mktemp("voice") / "model"
    convert(open_published(DIA, codec=CODEC, offline=True), path, dtype="float32")
    return open_published(path, offline=True).parts["dia"]


def rows_of(config: DiaConfig, rows: int, *, seed: int = 0) -> InputSources:
    """Random codes, since the codec computes none here."""
    given = InputSources({"dia": config}, {}, rows, 0.1, seed)
    given.made["codes"] = np.zeros((1, 0, 1), np.int32)
    return given


def rounding(layers: Any, part: ModelPart, stages: Any, state: Any, name: str) -> float:
    """Largest difference of two float32 runs, by those of PyTorch."""
    known, truth = (
        trace(stages, TorchLayerwise(layers, part.config, part, dtype).run, state).whole[name]
        for dtype in ("float32", "float64")
    )
    return 2 * bound(known, truth)


def test_mlx_layers_in_a_row_are_the_network(source, folder):
    """Whole runs of MLX against its own networks, with another cut of the rows; torch: test_ladders.py."""
    config = source.parts["dia"].config
    state = dia_state(rows_of(config, 20, seed=3))
    ours = mlx_port.DiaPipeline.load(folder).engine.network
    read = ours.read([mx.array(state["ids"][0])], ours.encode_nothing())
    logits = ours(mx.array(state["tokens"]), ours.new_cache(), read)
    converted = open_published(folder, offline=True).parts["dia"]
    port = Layerwise(DiaLayers, converted.config, Stored("dia", converted.files), "float32")
    whole = trace(dia_stages(config), port.run, state).whole["logits"]
    allowed = rounding(DiaLayers, source.parts["dia"], dia_stages(config), state, "logits")
    np.testing.assert_allclose(whole, np.array(logits), rtol=0, atol=allowed)


def test_mlx_layers_in_a_row_are_the_codec(source, folder):
    config = source.parts["dac"].config
    samples = signal(config, 0.1, 4)
    converted = open_published(folder, offline=True).parts["dac"]
    codec = mlx_port.DiaPipeline.load(folder).engine.codec
    port = Layerwise(DacLayers, config, Stored("dac", converted.files), "float32")
    encoded = trace(
        dac.encode_stages(config),
        port.run,
        {"samples": samples, "codes": no_codes(samples, config.hop_length)},
    ).whole
    np.testing.assert_array_equal(encoded["codes"], np.array(codec.encode(samples)))
    given = {"codes": encoded["codes"]}
    decoded = trace(dac.decode_stages(config), port.run, given).whole["audio"]
    allowed = rounding(DacLayers, source.parts["dac"], dac.decode_stages(config), given, "audio")
    np.testing.assert_allclose(decoded, np.array(codec.decode(encoded["codes"])), rtol=0, atol=allowed)


def test_inputs_are_the_oracles_own_rounded(source):
    config = source.parts["dia"].config
    layers = TorchLayerwise(DiaLayers, config, source.parts["dia"], "float64")
    run = trace(dia_stages(config), layers.run, dia_state(rows_of(config, 8)))
    assert run.made[1]["text"].dtype == np.float64
    assert run.inputs[2]["text"].dtype == np.float32
    np.testing.assert_array_equal(run.inputs[2]["text"], run.made[1]["text"].astype(np.float32))
    again = trace(dia_stages(config), layers.run, dia_state(rows_of(config, 8)), run.inputs)
    assert all(given is taken for given, taken in zip(run.inputs, again.inputs, strict=True))


def test_torch_holds_one_layer_at_a_time(voice, monkeypatch):
    """Every array of a layer is freed when the next layer starts, and no other parameter has memory."""
    alive: list[weakref.ref] = []
    layers = TorchLayerwise(DiaLayers, voice.config, voice, "float64")
    starts = []

    def read(part: ModelPart, name: str) -> np.ndarray:
        array = original(part, name)
        alive.append(weakref.ref(array))
        return array

    def start(stage: str) -> None:
        gc.collect()
        assert [ref for ref in alive if ref() is not None] == [], stage
        assert all(parameter.is_meta for parameter in layers.network.parameters()), stage
        alive.clear()
        starts.append(stage)

    original = ModelPart.read
    monkeypatch.setattr(ModelPart, "read", read)
    stages = dia_stages(voice.config)
    gc.collect()
    gc.freeze()  # older objects are not scanned again for every layer
    try:
        trace(stages, layers.run, dia_state(rows_of(voice.config, 4)), progress=start)
        start("the end")
    finally:
        gc.unfreeze()
    assert len(starts) == len(stages) + 1


def test_mlx_holds_one_layer_at_a_time(voice):
    """MLX's allocations and their peak against the sizes of the layers."""
    stages, names = dia_stages(voice.config), voice.names()
    sizes = [sum(4 * np.prod(voice.shape(name)) for name in stage.tensors(names)) for stage in stages]
    layers = Layerwise(DiaLayers, voice.config, Stored("dia", voice.files), "float32")
    state = dia_state(rows_of(voice.config, 4))
    mx.synchronize()
    before, slack = mx.get_active_memory(), 2**20  # activations, rotary tables
    held = []
    mx.reset_peak_memory()
    trace(stages, layers.run, state, progress=lambda _: held.append(mx.get_active_memory() - before))
    assert max(held) < slack
    assert mx.get_peak_memory() - before < 2 * max(sizes) + 4 * slack < sum(sizes) / 2
