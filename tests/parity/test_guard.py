"""NaN or infinite logits end a generation with the name of the layer that they come from."""

from dataclasses import replace
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

import mlx_port.guard
import torch_ref.guard
from tests.sides import BY_PACKAGE, PORT, Side
from tests.tiny.dia import compose
from tests.tiny.networks import Weights, tiny
from tts_core.dia.config import is_norm
from tts_core.errors import GenerationError

pytestmark = pytest.mark.rest

TEXTS = ["[S1] One, two.", "[S2] Three."]


@pytest.fixture(params=list(BY_PACKAGE.values()), ids=list(BY_PACKAGE))
def side(request: pytest.FixtureRequest) -> Side:
    return request.param


def in_half(side: Side, weights: Weights) -> Any:
    """A pipeline whose network computes in float16."""
    pipeline = compose(side, weights, tiny("dac"))
    network = pipeline.engine.network
    if side is PORT:
        names = [name for name in weights.names() if not is_norm(name)]
        halves = [(name, mx.array(weights.read(name)).astype(mx.float16)) for name in names]
        network.load_weights(halves, strict=False)
    else:
        for name, parameter in network.named_parameters():
            parameter.data = parameter.data if is_norm(name) else parameter.data.half()
    return pipeline


def enlarged(name: str, largest: float, rows: slice = slice(None)) -> Weights:
    """Tiny weights, with those of `name` (in these rows) scaled to a largest value; EOS is never drawn."""
    weights = tiny("dia", seed=3, eos=0.0)
    tensor = weights.read(name)
    tensor[rows] *= largest / np.abs(tensor[rows]).max()
    return replace(weights, tensors={**weights.tensors, name: tensor})


# tensor, its largest number, the expected layer
CASES = [
    ("model.encoder.layers.0.self_attention.o_proj", 3e4, "model.encoder.layers.0.self_attention.o_proj"),
    ("model.encoder.layers.1.mlp.gate_up_proj", 3e3, "model.encoder.layers.1.mlp"),
    ("model.decoder.layers.0.self_attention.v_proj", 3e4, "model.decoder.layers.0.self_attention.v_proj"),
    ("model.decoder.layers.1.cross_attention.k_proj", 3e4, "model.decoder.layers.1.cross_attention.k_proj"),
    ("model.decoder.layers.1.mlp.down_proj", 5e4, "model.decoder.layers.1.mlp.down_proj"),
    ("logits_dense", 3e4, "logits_dense"),
]


@pytest.mark.parametrize(("tensor", "largest", "layer"), CASES, ids=[case[0] for case in CASES])
def test_the_first_layer_that_overflows_in_float16_is_named(
    side: Side, tensor: str, largest: float, layer: str
) -> None:
    weights = enlarged(f"{tensor}.weight", largest)
    with pytest.raises(GenerationError) as caught:
        in_half(side, weights).generate_codes(TEXTS, max_frames=6, seed=1)
    message = str(caught.value)
    assert f"generation: {layer} gives NaN or infinity in float16 (text 1, row " in message
    assert message.endswith("use bfloat16 or float32")
    single = compose(side, weights, tiny("dac"))
    assert [codes.shape for codes in single.generate_codes(TEXTS, max_frames=6, seed=1)] == [(4, 6)] * 2


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"cfg_scale": 0, "seed": 1}, {"seed": 1}])
def test_the_text_that_overflows_is_named(side: Side, sampling: dict[str, Any]) -> None:
    h = slice(ord("h"), ord("h") + 1)  # in the second text only
    pipeline = compose(side, enlarged("model.encoder.embedding.weight", np.inf, h), tiny("dac"))
    found = pipeline.generate_codes(TEXTS[:1], max_frames=6, **sampling)
    assert found[0].shape == (4, 6)
    with pytest.raises(
        GenerationError, match=r"model\.encoder\.embedding gives .* float32 \(text 2, row 1\)"
    ):
        pipeline.generate_codes(TEXTS, max_frames=6, **sampling)
    with pytest.raises(GenerationError, match="check the model with: mlx-port verify"):
        pipeline.generate(TEXTS[1], max_frames=6, **sampling)


def test_a_row_is_marked_if_either_branch_is_no_number(side: Side) -> None:
    marked: Any = (mlx_port if side is PORT else torch_ref).guard.marked
    logits = np.zeros((6, 4, 9), np.float32)
    logits[1, 2, 3], logits[5, 0, 0] = np.nan, -np.inf
    ids = marked(side.array(np.ones((3, 4), np.int32)), side.array(logits))
    np.testing.assert_array_equal(side.numpy(ids), [[1] * 4, [-1] * 4, [-1] * 4])


def test_watching_leaves_nothing_behind(side: Side) -> None:
    guard: Any = (mlx_port if side is PORT else torch_ref).guard
    network = side.network("dia", tiny("dia", seed=3))
    kind = type(network.logits_dense)
    before = vars(kind).get("__call__"), len(getattr(network.logits_dense, "_forward_hooks", ()))
    with guard.watched(network) as found:
        network.logits_dense(side.array(np.full((1, 1, 44), np.nan, np.float32)))  # no fault in this text
        network.logits_dense(side.array(np.full((1, 1, 44), 3e38, np.float32)))
    assert found == ["logits_dense"]
    assert before == (vars(kind).get("__call__"), len(getattr(network.logits_dense, "_forward_hooks", ())))
