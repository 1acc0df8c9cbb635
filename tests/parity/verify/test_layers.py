"""Networks whose weights are read as they are used: equal to loaded ones, with few weights in memory."""

import gc
import weakref

import mlx.core as mx
import numpy as np
import pytest

import mlx_port
from converters.convert import convert
from converters.published import ModelPart, open_published
from mlx_port import watch
from mlx_port.commands.verify.watch import Side, side_of, trace
from tests.converters.folders import DAC, V_V01
from tests.parity.verify.origins import inputs
from torch_ref import watch as torch_watch
from torch_ref.loading import open_parts
from tts_core.nn.probe import Probe, probes
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
    return open_published(path, offline=True)


def dia(published) -> Probe:
    return probes("dia", inputs(published, 4, 0.1, 3))[-1]


def test_they_are_the_loaded_networks(source, folder):
    converted = open_published(folder, offline=True).parts
    pipeline = mlx_port.DiaPipeline.load(folder).engine
    loaded = open_parts(V_V01, codec=DAC, dtype="float32", device="cpu")
    for probe in probes("dia", inputs(source, 20, 0.1, 3)):
        part = source.parts[probe.kind]
        mlx = watch.unloaded(probe, converted[probe.kind], "float32")
        torch = torch_watch.unloaded(probe, part, "float32")
        known = pipeline.network if probe.kind == "dia" else pipeline.codec
        for (network, framework), whole in ((mlx, known), (torch, loaded.network(probe.kind))):
            both = [trace(Side(lambda n=n: probe.run(n, framework), framework, {})) for n in (network, whole)]  # noqa: B023
            for name, calls in both[0].results.items():
                for one, other in zip(calls, both[1].results[name], strict=True):
                    np.testing.assert_array_equal(one, other, err_msg=f"{probe.name} {name}")


def test_torch_holds_one_module_at_a_time(voice, monkeypatch):
    alive: list[weakref.ref] = []
    held: list[int] = []
    part, probe = voice.parts["dia"], dia(voice)

    def read(part: ModelPart, name: str) -> np.ndarray:
        array = original(part, name).copy()
        alive.append(weakref.ref(array))
        return array

    original = ModelPart.read
    monkeypatch.setattr(ModelPart, "read", read)
    network, framework = torch_watch.unloaded(probe, part, "float32")

    def note(name: str) -> None:
        gc.collect()
        held.append(sum(array.nbytes for ref in alive if (array := ref()) is not None))

    gc.collect()
    gc.freeze()  # older objects are not scanned again for every layer
    try:
        trace(side_of(probe, network, framework), progress=note)
    finally:
        gc.unfreeze()
    largest = max(4 * np.prod(part.shape(name)) for name in part.names())
    assert 0 < max(held) <= largest < sum(4 * np.prod(part.shape(name)) for name in part.names()) / 4


def test_mlx_holds_one_layer_at_a_time(voice):
    """MLX's allocations and their peak against the sizes of the layers."""
    part, probe = voice.parts["dia"], dia(voice)
    network, framework = watch.unloaded(probe, part, "float32")
    names = probe.rows_in(torch_watch.unloaded(probe, part, "float32")[0])
    sizes = [
        sum(4 * np.prod(part.shape(tensor)) for tensor in part.names() if tensor.startswith(f"{name}."))
        for name in names
    ]
    mx.synchronize()
    before, slack = mx.get_active_memory(), 2**20  # activations, rotary tables
    mx.reset_peak_memory()
    trace(side_of(probe, network, framework, names))
    total = sum(4 * np.prod(part.shape(name)) for name in part.names())
    assert mx.get_peak_memory() - before < 2 * max(sizes) + 4 * slack < total / 2


def test_an_error_while_they_run_leaves_the_modules_as_they_were(source):
    part, probe = source.parts["dia"], dia(source)
    side = side_of(probe, *torch_watch.unloaded(probe, part, "float32"))
    classes = [type(module) for module in side.modules.values()]

    def fail(name: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trace(side, progress=fail)
    assert [type(module) for module in side.modules.values()] == classes
