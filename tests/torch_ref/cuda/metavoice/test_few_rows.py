"""The layers of few rows on kernels are as exact as the plain ones. Triton can interpret them on a CPU."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.sides import ORACLE, YARDSTICK
from tests.tiny.networks import Weights, first_stage_config, tiny
from tests.tolerance import assert_within
from torch_ref.cuda import attention
from torch_ref.cuda import rows as row_kernels
from torch_ref.cuda.metavoice.rows import MetaVoiceRows
from torch_ref.layers.row_cache import RowCache, RowPositions
from torch_ref.metavoice.first_stage import FirstStage

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
# heads of a power of two; other widths
CONFIG = replace(
    first_stage_config(), hidden_size=48, num_attention_heads=3, intermediate_size=75, num_hidden_layers=2
)


def filled(weights: Weights, dtype: torch.dtype) -> FirstStage:
    return YARDSTICK.network("metavoice", weights, str(dtype).removeprefix("torch.")).to(DEVICE)


INTERPRETED = () if CUDA else (pytest.mark.slow,)  # a minute


@pytest.mark.parametrize("rows", [pytest.param(rows, marks=INTERPRETED) for rows in (1, 2, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@torch.inference_mode()
def test_few_rows(dtype: torch.dtype, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Token by token after a prompt; keys and values go to the places of the plain layers'."""
    pytest.importorskip("triton", reason="triton is not installed: it comes with torch for CUDA")
    if not (CUDA or os.environ.get("TRITON_INTERPRET")):
        pytest.skip("no NVIDIA GPU: TRITON_INTERPRET=1 lets Triton interpret the kernels")
    if dtype == torch.bfloat16 and not CUDA:
        pytest.skip("no NVIDIA GPU: Triton's interpreter rounds bfloat16 towards zero")
    monkeypatch.setattr(row_kernels, "TILE_BYTES", 16384)  # several programs, blocks and parts
    monkeypatch.setattr(attention, "BLOCK", 256)
    monkeypatch.setattr(attention, "PROGRAMS", 40)
    weights, random = tiny(CONFIG), np.random.default_rng(1)
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
    positions = torch.full((rows,), 34, device=DEVICE)
    at = RowPositions(40)
    layers = MetaVoiceRows(network, [RowCache(*held.buffers, at) for held in own if held.buffers], positions)
    got, known = [], []
    for column in range(34, 37):
        new = tokens[:, column : column + 1]
        x = network.transformer.embed(new, heard, positions[:, None])[:, 0]
        got.append(layers(x.contiguous()).float().cpu())
        known.append(network.next_logits(new, heard, plain).cpu())
        positions += 1
    got, known, truth = torch.stack(got, 1), torch.stack(known, 1), truth[:, 34:37]
    if dtype == torch.float32:
        assert_within(got.numpy(), known.numpy(), truth.numpy(), "few rows")
    off, plainly_off = ((x - truth).pow(2).mean().sqrt() for x in (got, known))
    assert off < 1.5 * plainly_off + 1e-6
