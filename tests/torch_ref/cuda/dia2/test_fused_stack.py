"""The fused layers against the plain ones, for few rows and for many."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.torch_ref.cuda.dia2.kernel_dia2 import config, network
from tests.torch_ref.cuda.marks import DEVICE, kernel_marks
from torch_ref.cuda.dia2.fused_stack import runs
from torch_ref.cuda.dia2.step import Dia2Buffers, FusedDia2
from torch_ref.dia2.dia2 import Dia2
from tts_core.dia2.config import GATED

pytestmark = kernel_marks()

STEPS = 9


def read(texts: int, whole: Any) -> np.ndarray:
    return np.random.default_rng(7).integers(0, 33, (texts, STEPS, 2 + whole.n_streams))


def inputs(rows: int, built: Dia2) -> Tensor:
    """Inputs of the depformer's stages. (stages, R, E)."""
    shape = len(built.config.stage_sets), rows, built.config.depformer.hidden_size
    return torch.from_numpy(np.random.default_rng(8).normal(0, 1, shape))


def plain_reading(built: Dia2, texts: int) -> Tensor:
    """Logits of the last step's first code, and the depformer's inputs. (2 B, ·)."""
    whole, transformer = built.config, built.transformer
    device = transformer.norm.weight.device
    rows = torch.from_numpy(read(texts, whole)).to(device).repeat(2, 1, 1)
    rows[texts:, :, 0], rows[texts:, :, 1] = whole.text_zero_id, whole.text_pad_id
    hidden = transformer(rows, 0, transformer.new_cache())[:, -1]
    fed = [layer(hidden) for layer in built.depformer.depformer_in]
    return torch.cat((transformer.codes(hidden), *fed), dim=-1)


def fused_reading(built: Dia2, texts: int) -> Tensor:
    state, step = Dia2Buffers.empty(built, texts, STEPS, guided=True), FusedDia2(built)
    for place in range(STEPS):
        tokens = torch.from_numpy(read(texts, built.config)[:, place].T).to(DEVICE)
        state.rows.inputs[3:5], state.rows.inputs[1:3] = tokens[:2], place
        state.rows.inputs[5:] = tokens[2:]
        projected = step.read(state)
    return projected.unflatten(0, (texts, 2)).transpose(0, 1).flatten(0, 1)


def plain_stages(built: Dia2, rows: int) -> Tensor:
    """Logits of all stages for given inputs. (stages, R, codes)."""
    depformer: Any = built.depformer
    cache, found = depformer.new_cache(), []
    for stage, given in enumerate(inputs(rows, built)):
        x = given.to(depformer.audio_embeds[0].weight)[:, None]
        rotation = None if depformer.rotary is None else depformer.rotary(stage, 1)
        for layer, held in zip(depformer.layers, cache, strict=True):
            x = layer(x, depformer.stage_sets[stage], rotation, held)
        found.append(depformer.head(stage, depformer.norm(x))[:, 0])
    return torch.stack(found)


def fused_stages(built: Dia2, rows: int) -> Tensor:
    state, step, found = Dia2Buffers.empty(built, rows, STEPS, guided=False), FusedDia2(built), []
    for stage, given in enumerate(inputs(rows, built)):
        layers, at = step.sets[built.config.stage_sets[stage]], step.stages[stage : stage + 1]
        y, added = layers.run(given.to(DEVICE, step.heads.dtype), at, at, state.frame)
        found.append(layers.norm_linear(y, added, step.stage_norm, step.logits[stage]))
    return torch.stack(found)


@torch.inference_mode()
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("rope", [True, False])
@pytest.mark.parametrize("count", [1, 3, 5])
@pytest.mark.parametrize(
    ("plain", "fused"), [(plain_reading, fused_reading), (plain_stages, fused_stages)], ids=["read", "stages"]
)
def test_logits(
    plain: Callable[[Dia2, int], Tensor],
    fused: Callable[[Dia2, int], Tensor],
    count: int,
    rope: bool,
    dtype: str,
) -> None:
    """As near to float64 as the plain layers are, or up to three times as far: roots and exponentials are
    approximate.
    """
    built = network(rope=rope, dtype=dtype)
    exact = network(rope=rope, dtype=dtype).double().cpu()
    truth = plain(exact, count)
    known = (plain(built, count).double().cpu() - truth).norm()
    own = (fused(built, count).double().cpu() - truth).norm()
    assert 0 < own < 3 * known
    assert known < 16 * torch.finfo(getattr(torch, dtype)).eps * truth.norm()


def test_networks_that_they_run_on() -> None:
    built = network()
    assert runs(built)
    whole = config()
    stack = replace(whole.depformer, activations=("gelu", "linear"))
    for other in (replace(whole, depformer=stack), replace(whole, depformer_has_text=True)):
        assert not runs(Dia2(other).to(DEVICE))
    assert GATED == ("silu", "linear")
    built.transformer.compute = torch.bfloat16
    assert not runs(built)


@torch.inference_mode()
def test_weights_are_stored_once() -> None:
    built = network()
    before = {name: one.clone() for name, one in built.state_dict().items()}
    step = FusedDia2(built)
    transformer: Any = built.transformer
    depformer: Any = built.depformer
    layer = transformer.layers[0]
    for own, joined in (
        (layer.attn.k_proj, step.trunk.layers[0].qkv),
        (transformer.cb0_head, step.heads),
        (depformer.depformer_in[1], step.heads),
        (transformer.audio_embeds[3], step.table),
    ):
        assert own.weight.untyped_storage().data_ptr() == joined.untyped_storage().data_ptr()
    for name, one in built.state_dict().items():
        torch.testing.assert_close(one, before[name], rtol=0, atol=0)
    again = FusedDia2(built)
    assert again.heads.data_ptr() == step.heads.data_ptr()
