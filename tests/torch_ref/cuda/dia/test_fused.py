"""The fused decoder against the plain one, for few rows and for many."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.torch_ref.cuda.dia.kernel_dia import network
from tests.torch_ref.cuda.marks import DEVICE, kernel_marks
from torch_ref.cuda.dia.decoder import CapturedDia
from torch_ref.cuda.dia.fused import FusedDecoder, runs
from torch_ref.dia.dia import Dia
from tts_core.dia.grid import FREE, DiaInputs
from tts_core.dia.options import DiaSampling
from tts_core.nn.noise import HostNoise

pytestmark = kernel_marks()

ROWS, LENGTHS, INPUTS = 30, (3, 17, 9, 1), 4


def texts(count: int, seed: int) -> list[torch.Tensor]:
    random = torch.Generator().manual_seed(7 + seed)
    return [torch.randint(1, 200, (LENGTHS[place],), generator=random) for place in range(count)]


def grid(count: int, seed: int) -> torch.Tensor:
    return torch.randint(0, 60, (count, ROWS, 4), generator=torch.Generator().manual_seed(80 + seed))


def plain(built: Dia, count: int, seed: int, *, guided: bool) -> torch.Tensor:
    """Logits of the last row of every text, computed one by one. (R, C·V)."""
    device = built.logits_dense.weight.device
    nothing, found = built.encode_empty() if guided else None, []
    for tokens, rows in zip(texts(count, seed), grid(count, seed), strict=True):
        source = built.read([tokens.to(device)], nothing)
        both = rows[None].to(device).expand(1 + guided, -1, -1)
        found.append(built.next_logits(both, built.new_cache(), source).flatten(1))
    return torch.stack(found).transpose(0, 1).flatten(0, 1)


def fused(built: Dia, count: int, seed: int, *, guided: bool) -> torch.Tensor:
    """The same: all rows but the last read as a prompt."""
    decoder = FusedDecoder(built, built.encode_empty() if guided else None)
    captured = CapturedDia(decoder, texts=count, capacity=ROWS + 2, text_rows=20)
    sampling = DiaSampling(cfg_scale=3.0, temperature=0.0, top_p=1.0, top_k=0)
    for slot, (tokens, rows) in enumerate(zip(texts(count, seed), grid(count, seed), strict=True)):
        known = torch.full((ROWS + 2, 4), FREE)
        known[:ROWS] = rows
        ids, whole = tokens.int().numpy(), known.int().numpy()
        captured.join({slot: DiaInputs(ids, whole, ROWS, 0, 100, sampling, HostNoise(1))})
    return decoder.logits(captured.rows, captured.memory)


@torch.inference_mode()
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("cross_rope", [False, True])
@pytest.mark.parametrize("guided", [True, False])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_logits(count: int, guided: bool, cross_rope: bool, dtype: torch.dtype) -> None:
    """As near to float64 as the plain layers are, or up to twice as far, by the mean square of several
    inputs.

    Both round every row of the grid by themselves, so that their errors are two draws of one law: 2.0 is
    where a ratio of mean squares with 8 degrees of freedom each lies in 97 of 100 cases (F = 4), and all
    logits of an input share most of its error. Norms stay float32.
    """
    exact = network(cross_rope=cross_rope).double().cpu()
    built = network(cross_rope=cross_rope)
    for name, parameter in built.named_parameters():
        if parameter.ndim > 1:
            parameter.data = parameter.data.to(dtype)
            exact.get_parameter(name).data = parameter.data.double().cpu()
    known = own = size = 0.0
    for seed in range(INPUTS):
        truth = plain(exact, count, seed, guided=guided)
        known += float((plain(built, count, seed, guided=guided).double().cpu() - truth).square().sum())
        own += float((fused(built, count, seed, guided=guided).double().cpu() - truth).square().sum())
        size += float(truth.square().sum())
    assert 0 < own < 2**2 * known
    assert known < (16 * torch.finfo(dtype).eps) ** 2 * size


def test_networks_that_they_run_on() -> None:
    built = network()
    assert runs(built)
    assert not runs(built.double())


@torch.inference_mode()
def test_weights_are_stored_once() -> None:
    built = network().to(DEVICE)
    before = {name: one.clone() for name, one in built.state_dict().items()}
    decoder = FusedDecoder(built, None)
    layer: Any = built.model.decoder.layers[0]
    storage = layer.self_attention.q_proj.weight.untyped_storage().data_ptr()
    assert storage == decoder.layers[0].qkv.untyped_storage().data_ptr()
    assert storage == layer.self_attention.v_proj.weight.untyped_storage().data_ptr()
    for name, one in built.state_dict().items():
        torch.testing.assert_close(one, before[name], rtol=0, atol=0)
