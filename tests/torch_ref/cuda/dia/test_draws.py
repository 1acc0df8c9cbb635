"""The captured draw against the rules on tensors, and the grid's rule on the device against DelayGrid."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.torch_ref.cuda.dia.kernel_dia import config
from tests.torch_ref.cuda.marks import DEVICE, kernel_marks
from torch_ref.cuda.dia.draws import DiaDraws, draw
from torch_ref.cuda.sampling import own_rows
from torch_ref.sampling import draw_rows
from tts_core.dia.config import DiaConfig
from tts_core.dia.grid import FREE, DelayGrid
from tts_core.dia.options import SAMPLER_0626, SAMPLER_V01, DiaSampling, allowed_ids

pytestmark = kernel_marks()

SETTINGS = {
    "defaults": DiaSampling(cfg_scale=3.0, temperature=1.2, top_p=0.9, top_k=20),
    "greedy": DiaSampling(cfg_scale=3.0, temperature=0.0, top_p=0.9, top_k=20),
    "no filter": DiaSampling(cfg_scale=1.0, temperature=0.7, top_p=1.0, top_k=0),
    "one id": DiaSampling(cfg_scale=0.0, temperature=1.0, top_p=1e-6, top_k=0),
    "all but one": DiaSampling(cfg_scale=2.5, temperature=2.0, top_p=0.999, top_k=66),
}


def rows_of(grids: list[DelayGrid], sampling: DiaSampling, ring: int = 4) -> DiaDraws:
    texts, channels, rows = len(grids), grids[0].channels, max(len(grid.rows) for grid in grids)

    def whole(*shape: int, number: float = 0) -> torch.Tensor:
        return torch.full(shape, number, dtype=torch.int32, device=DEVICE)

    def given(x: list[int] | np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.asarray(x, np.int32)).to(DEVICE)

    return DiaDraws(
        filled=given([grid.filled for grid in grids]),
        prompt=given([grid.prompt_frames for grid in grids]),
        limit=given([grid.max_frames for grid in grids]),
        ends=given([grid.end for grid in grids]),
        cells=given(np.stack([padded(grid, rows) for grid in grids])),
        tick=whole(texts),
        drawn=whole(ring, texts, channels),
        settings=torch.from_numpy(SAMPLER_0626.table([sampling] * texts)).to(DEVICE),
        arrivals=whole(texts),
        own=own_rows(texts, torch.device(DEVICE)),
    )


def allowed(network: DiaConfig) -> torch.Tensor:
    shape = network.decoder_config.num_channels, network.decoder_config.vocab_size
    return torch.from_numpy(allowed_ids(*shape, network.eos_token_id)).to(DEVICE, torch.int8)


def drawn(logits: torch.Tensor, noise: torch.Tensor, rows: DiaDraws, network: DiaConfig) -> None:
    delays = torch.tensor(network.delay_pattern, dtype=torch.int32, device=DEVICE)
    draw(logits.flatten(1).to(DEVICE), noise, delays, allowed(network), rows, network)


def padded(grid: DelayGrid, rows: int) -> np.ndarray:
    return np.pad(grid.rows, ((0, rows - len(grid.rows)), (0, 0)), constant_values=FREE)


def hard_logits(texts: int, guided: bool) -> torch.Tensor:
    """Random ones with ties, forbidden ids that guidance favors, and EOS as the best of channel 0."""
    shape = config().decoder_config
    random = np.random.default_rng(5)
    logits = random.normal(0, 3, ((1 + guided) * texts, shape.num_channels, shape.vocab_size))
    logits[: texts // 4] = logits[: texts // 4].round()
    logits[texts // 4 : texts // 2, :, 61:] += 30
    logits[texts // 2 : 3 * texts // 4, 0, 60] += 20
    return torch.from_numpy(logits.astype(np.float32))


@torch.inference_mode()
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("cross_rope", [False, True])
def test_draws(cross_rope: bool, name: str) -> None:
    """Ids equal those of the rules, channel by channel. torch on CUDA divides by multiplying: compared here
    with the CPU's rules, on the same numbers.
    """
    network, sampling, texts = config(cross_rope=cross_rope), SETTINGS[name], 64
    guided = sampling.cfg_scale != 0
    logits = hard_logits(texts, guided)
    uniform = torch.from_numpy(
        np.random.default_rng(2).uniform(1e-6, 1 - 1e-6, (texts, *logits.shape[1:])).astype(np.float32)
    )
    sampler = SAMPLER_V01 if cross_rope else SAMPLER_0626
    table = sampler.named(torch.from_numpy(sampler.table([sampling] * texts)), 3)
    forbidding = {"allowed": allowed(network).cpu() > 0, "end": network.eos_token_id}
    expected = draw_rows([*logits.unflatten(0, (-1, texts))], table, uniform, sampler, **forbidding)

    rows = rows_of([DelayGrid(network, None, 20)] * texts, sampling)
    noise = torch.log(-torch.log(uniform.to(DEVICE))).expand(4, *uniform.shape).contiguous()
    drawn(logits, noise, rows, network)
    np.testing.assert_array_equal(rows.drawn[0].cpu().numpy(), expected.numpy())
    assert (rows.tick == 1).all()
    assert not rows.arrivals.any()


@torch.inference_mode()
@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("unconditional", [False, True])
def test_logits_that_are_not_finite_are_marked(number: float, unconditional: bool) -> None:
    """In the channel that holds them; other texts are drawn."""
    network, texts = config(), 4
    logits = hard_logits(texts, True)
    logits[2 + texts * unconditional, 1, 3] = number
    rows = rows_of([DelayGrid(network, None, 20)] * texts, SETTINGS["defaults"])
    noise = torch.zeros(4, texts, *logits.shape[1:], device=DEVICE)
    drawn(logits, noise, rows, network)
    marked = rows.drawn[0].cpu().numpy() == -1
    assert marked[2, 1]
    assert marked.sum() == 1


@torch.inference_mode()
def test_rows_follow_the_grid() -> None:
    """Prompts of different lengths, ends by EOS and by the limit, and rows after them."""
    network, texts = config(), 4
    channels, vocabulary = network.decoder_config.num_channels, network.decoder_config.vocab_size
    random = np.random.default_rng(4)
    prompts = [None, random.integers(0, 60, (channels, 3)), None, random.integers(0, 60, (channels, 6))]
    grids = [
        DelayGrid(network, prompt if prompt is None else prompt.astype(np.int32), limit)
        for prompt, limit in zip(prompts, [9, 4, 12, 5], strict=True)
    ]
    rows = rows_of(grids, replace(SETTINGS["greedy"], top_k=0))
    last = rows.cells.shape[1] - 1
    noise = torch.zeros(4, texts, channels, vocabulary, device=DEVICE)
    for step in range(rows.cells.shape[1] - 1):
        logits = random.normal(0, 1, (texts, channels, vocabulary)).astype(np.float32)
        logits[2, 0, network.eos_token_id] = 50.0 if step == 5 else -50.0
        drawn(torch.from_numpy(logits), noise, rows, network)
        ids = rows.drawn[step % 4].cpu().numpy()
        for text, grid in enumerate(grids):
            if grid.done:
                continue
            grid.accept(ids[text])
            known = rows.cells[text, : grid.filled].cpu().numpy()
            np.testing.assert_array_equal(known, grid.rows[: grid.filled])
            assert rows.ends[text] == grid.end
            assert rows.filled[text] == min(grid.filled, last)
    assert all(grid.done for grid in grids)
