"""The layers of Mimi that verify runs one by one are each within their bound."""

import mlx.core as mx
import numpy as np
import pytest

from converters.convert import convert
from converters.published import open_published
from mlx_port.commands.verify.measure import distances, measure
from mlx_port.commands.verify.run import trace
from mlx_port.layerwise import Layerwise
from mlx_port.stored import Stored
from tests.golden.cases import DEFAULT
from tests.sides import ORACLE, YARDSTICK
from torch_ref.layerwise import Layerwise as TorchLayerwise
from tts_core.codecs.ladder import mimi_rungs
from tts_core.nn.ladder import InputSources

pytestmark = pytest.mark.rest


@pytest.fixture(scope="module", params=["mimi", "mimi_odd"])
def published(request):
    return open_published(DEFAULT / "dia2" / request.param, parts=["mimi"])


def test_every_layer_of_mlx_is_within_its_bound(published, tmp_path):
    """The converted folder against torch, each layer on the oracle's own inputs, as verify does it."""
    source = published.parts["mimi"]
    convert(published, tmp_path / "codec")
    [part] = open_published(tmp_path / "codec", parts=["mimi"], offline=True).parts.values()
    assert part.layout == "mlx"
    given, rows = InputSources({"mimi": source.config}, {}, 11, 0.4, 0), 0
    for rung in mimi_rungs(given):
        state = rung.state(given)
        kinds = {"float64": ORACLE, "float32": YARDSTICK}
        oracle, torch32 = (TorchLayerwise(rung.layers, source.config, source, dtype) for dtype in kinds)
        truth = trace(rung.stages, oracle.run, state)
        given.made.update({name: truth.whole[name] for name in rung.keeps})
        known = trace(rung.stages, torch32.run, state, truth.inputs)
        port = Layerwise(rung.layers, source.config, Stored("mimi", part.files), "float32")
        own = trace(rung.stages, port.run, state, truth.inputs)
        for stage, *made in zip(rung.stages, truth.made, known.made, own.made, strict=True):
            if stage.codebook is not None:
                name, between = stage.codebook
                costs = distances(made[0]["encodings"], source.read(name), between)
                np.testing.assert_array_equal(made[2]["codes"][:, -1], costs.argmin(-1), stage.name)
            for array in stage.arrays:
                wide, single, value = ([side[array]] for side in made)
                row = measure("codec", stage.name, "float32", wide, single, value, judged=True)
                assert row.passed, row
                rows += 1
    assert rows > 20
    mx.clear_cache()
