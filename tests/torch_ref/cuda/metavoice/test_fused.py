"""The fused layers and the captured step equal the plain ones. Triton can interpret its kernels on a CPU."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.sides import ORACLE, YARDSTICK
from tests.tiny.metavoice import Weights, first_stage_config, first_stage_weights, tokenizers
from tests.tolerance import assert_within
from tests.torch_ref.cuda.eager import eager
from torch_ref.cuda import attention
from torch_ref.cuda import rows as row_kernels
from torch_ref.metavoice import first_stage_loop, step
from torch_ref.metavoice.first_stage import FirstStage
from torch_ref.metavoice.fused import FusedLayers, fused_layers
from torch_ref.metavoice.step import fix
from tts_core.metavoice.sampling import FirstStageSampling
from tts_core.nn.noise import HostNoise

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
# heads of a power of two; other widths
CONFIG = replace(
    first_stage_config(), hidden_size=48, num_attention_heads=3, intermediate_size=75, num_hidden_layers=2
)
SETTINGS = {
    "defaults": FirstStageSampling(),
    "one row": FirstStageSampling(cfg_scale=1.0),
    "three rows": FirstStageSampling(2.0, 1.5, rule="slow"),
    "greedy": FirstStageSampling(top_p=None, top_k=1),
}


def filled(weights: Weights, dtype: torch.dtype) -> FirstStage:
    return YARDSTICK.network("metavoice", weights, str(dtype).removeprefix("torch.")).to(DEVICE)


INTERPRETED = () if CUDA else (pytest.mark.slow,)  # a minute


@pytest.mark.parametrize("rows", [pytest.param(rows, marks=INTERPRETED) for rows in (1, 2, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@torch.inference_mode()
def test_fused_layers(dtype: torch.dtype, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Token by token after a prompt; keys and values go to the places of the plain layers'."""
    pytest.importorskip("triton", reason="triton is not installed: it comes with torch for CUDA")
    if not (CUDA or os.environ.get("TRITON_INTERPRET")):
        pytest.skip("no NVIDIA GPU: TRITON_INTERPRET=1 lets Triton interpret the kernels")
    if dtype == torch.bfloat16 and not CUDA:
        pytest.skip("no NVIDIA GPU: Triton's interpreter rounds bfloat16 towards zero")
    monkeypatch.setattr(row_kernels, "TILE_BYTES", 16384)  # several programs, blocks and parts
    monkeypatch.setattr(attention, "BLOCK", 256)
    monkeypatch.setattr(attention, "PROGRAMS", 40)
    weights, random = first_stage_weights(CONFIG), np.random.default_rng(1)
    ids = random.integers(0, 2300, (rows, 40))
    speakers = random.normal(0, 1, (rows, 10)).astype(np.float32)
    exact = ORACLE.network("metavoice", weights)
    truth = exact(
        torch.from_numpy(ids), exact.speakers(torch.from_numpy(speakers).double()), exact.new_cache(40)
    )
    network = filled(weights, dtype)
    tokens, heard = torch.from_numpy(ids).to(DEVICE), torch.from_numpy(speakers).to(DEVICE)
    heard = network.speakers(heard)
    plain, own = network.new_cache(40), network.new_cache(40)
    for caches in (plain, own):
        network(tokens[:, :34], heard, caches)
    position = torch.tensor([34], device=DEVICE)
    mask = torch.zeros(1, 1, 1, 40, dtype=torch.bool, device=DEVICE)
    layers = FusedLayers(network, [fix(cache, position, mask) for cache in own])
    got, known = [], []
    for at in range(34, 37):
        x = network.transformer.embed(tokens[:, at : at + 1], heard, position)[:, 0]
        got.append(layers(x.contiguous()).float().cpu())
        known.append(network.next_logits(tokens[:, at : at + 1], heard, plain).cpu())
        position += 1
    got, known, truth = torch.stack(got, 1), torch.stack(known, 1), truth[:, 34:37]
    if dtype == torch.float32:
        assert_within(got.numpy(), known.numpy(), truth.numpy(), "fused layers")
    off, plainly_off = ((x - truth).pow(2).mean().sqrt() for x in (got, known))
    assert off < 1.5 * plainly_off + 1e-6


FORMS = [pytest.param(True, marks=pytest.mark.cuda, id="fused"), pytest.param(False, id="plain layers")]


@pytest.mark.parametrize("fused", FORMS)
@pytest.mark.parametrize("name", SETTINGS)
def test_captured_step(name: str, fused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In float32, one text, and two of unequal lengths, which have too many rows for the fused form."""
    network, table = filled(first_stage_weights(CONFIG), torch.float32), tokenizers().first_stage
    prompts = [table.encode(text) for text in ("Hello there.", "a")]
    speakers = np.random.default_rng(3).normal(0, 1, (2, 10)).astype(np.float32)
    made: list[step.GraphStep] = []

    def make(*given: Any, **named: Any) -> step.GraphStep:
        made.append(step.GraphStep(*given, **named))
        return made[-1]

    def run(count: int) -> list[list[int]]:
        texts = first_stage_loop.generate_tokens(
            network,
            prompts[:count],
            speakers[:count],
            sampling=SETTINGS[name],
            limits=[14, 20][:count],
            noise=[HostNoise(1), HostNoise(2)][:count],
            end_of_text=table.end_of_text,
        )
        return [ids.tolist() for ids in texts]

    monkeypatch.setattr(first_stage_loop, "make_step", step.Step)
    expected = [run(1), run(2)]
    monkeypatch.setattr(first_stage_loop, "make_step", make)
    if not fused:
        monkeypatch.setattr(step, "fused_layers", lambda *_: None)
    if not CUDA:
        monkeypatch.setattr(step, "capture", eager)
    assert [run(1), run(2)] == expected
    assert all(each.graph is not None for each in made)
    assert [each.layers is not None for each in made] == [fused, fused and SETTINGS[name].rows == 1]


def test_the_cpu_takes_the_plain_step() -> None:
    network = FirstStage(CONFIG)
    made = step.make_step(network, torch.zeros(1, 10), SETTINGS["defaults"], room=4, end_of_text=0)
    assert type(made) is step.Step


@torch.inference_mode()
def test_where_there_is_no_fused_form() -> None:
    """On a CPU: a fixed cache keeps the buffers that the prompt filled."""
    network = FirstStage(CONFIG)
    caches = network.new_cache(5)
    network(torch.tensor([[1, 2]]), network.speakers(torch.zeros(1, 10)), caches)
    fixed = [fix(cache, torch.tensor([2]), torch.zeros(1, 1, 1, 5, dtype=torch.bool)) for cache in caches]
    assert fused_layers(network, fixed, 1) is None
    for cache, still in zip(caches, fixed, strict=True):
        assert cache.buffers is not None
        assert still.keys is cache.buffers[0]
        assert still.values is cache.buffers[1]


@torch.inference_mode()
def test_fixed_caches_hold_what_growing_ones_do() -> None:
    """The work that a graph replays, without a graph: logits token by token, in float64 to rounding."""
    network = ORACLE.network("metavoice", first_stage_weights(CONFIG))
    ids = torch.from_numpy(np.random.default_rng(1).integers(0, 2300, (2, 16)))
    heard = network.speakers(torch.randn(2, 10, dtype=torch.float64))
    growing, own = network.new_cache(16), network.new_cache(16)
    for caches in (growing, own):
        network(ids[:, :9], heard, caches)
    position, mask = torch.tensor([9]), torch.zeros(1, 1, 1, 16, dtype=torch.bool)
    fixed = [fix(cache, position, mask) for cache in own]
    for at in range(9, 16):
        mask.copy_(torch.arange(16) <= position)
        got = network.next_logits(ids[:, at : at + 1], heard, fixed)
        position += 1
        expected = network.next_logits(ids[:, at : at + 1], heard, growing)
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-11)
