"""The captured draws against the rules on tensors, and the sum of embeddings against the network's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.torch_ref.cuda.marks import DEVICE, kernel_marks
from tests.torch_ref.cuda.qwen3.kernel_qwen3 import config, network
from torch_ref.cuda.qwen3.draws import draw, embed
from torch_ref.cuda.qwen3.step import FusedQwen3, Qwen3Captured
from torch_ref.cuda.triton import INTERPRETED
from torch_ref.sampling import draw_rows
from tts_core.qwen3.config import SUPPRESSED
from tts_core.qwen3.layout import FIRST, OTHERS, Qwen3Choice, Qwen3Sampling, allowed_ids

pytestmark = kernel_marks()

CHOICES = {
    "defaults": Qwen3Choice(),
    "greedy": Qwen3Choice(is_greedy=True),
    "all": Qwen3Choice(top_k=0),
    "both cuts": Qwen3Choice(temperature=1.4, top_k=9, top_p=0.5),
    "top p": Qwen3Choice(top_k=0, top_p=0.8),
    "the best": Qwen3Choice(top_k=1),
    "nearly the best": Qwen3Choice(top_k=0, top_p=1e-6),
    "more than there are": Qwen3Choice(top_k=5000, top_p=0.99),
}
SAMPLINGS = [Qwen3Sampling(one, one, penalty) for one in CHOICES.values() for penalty in (1.0, 1.3, 0.8)]
TEXTS = len(SAMPLINGS)


def state_of(random: np.random.Generator) -> Qwen3Captured:
    """Of a text of every sampling, each with its own random numbers, penalties and step."""
    built = network()
    state = Qwen3Captured.empty(built, torch.zeros(3, TEXTS, dtype=torch.int64, device=DEVICE), 4)
    rows = state.rows
    rows.steps.copy_(torch.arange(TEXTS) % 4)
    rows.settings.copy_(torch.from_numpy(np.stack([FIRST.table(one.numbers) for one in SAMPLINGS])))
    rows.seen.copy_(torch.from_numpy(random.integers(0, 2, rows.seen.shape)))
    uniform = torch.from_numpy(random.uniform(1e-6, 1 - 1e-6, rows.noise.shape).astype(np.float32))
    rows.noise.copy_(uniform)
    return state


def allowed() -> torch.Tensor:
    whole = config()
    return torch.from_numpy(allowed_ids(whole.vocab_size, SUPPRESSED, whole.codec_eos_id)).to(
        DEVICE, torch.int8
    )


@torch.inference_mode()
@pytest.mark.parametrize("ties", [False, True], ids=["different", "ties"])
@pytest.mark.parametrize("stage", [0, 1, 2])
def test_ids_are_those_of_the_rules(stage: int, *, ties: bool) -> None:
    """Ties: few different logits, so that cuts fall between equal ones. The end is often the largest."""
    whole, random = config(), np.random.default_rng(3 + stage)
    state = state_of(random)
    rows, size = state.rows, whole.codebook_size
    width = size if stage else whole.vocab_size
    made = random.normal(0, 2, (TEXTS, width)).astype(np.float32)
    if not stage:
        made[::2, whole.codec_eos_id] += 8
    logits = torch.from_numpy(np.round(made) if ties else made)
    start = whole.vocab_size + (stage - 1) * size if stage else 0
    uniform, seen = rows.noise[:, start : start + width].cpu().clone(), rows.seen.cpu().clone()
    rows.noise.log_().neg_().log_()
    sampler, codes = (OTHERS if stage else FIRST), allowed()
    columns = sampler.named(
        torch.from_numpy(sampler.table(one.numbers[min(stage, 1)] for one in SAMPLINGS)), 2
    )
    inputs = {"allowed": codes.cpu() > 0, "counts": seen, "step": rows.steps[:, None].cpu()}
    known = draw_rows([logits], columns, uniform, sampler, end=whole.codec_eos_id, **inputs).tolist()
    table = torch.from_numpy(random.normal(0, 1, (width, 32)).astype(np.float32)).to(DEVICE)
    draw(logits.to(DEVICE), rows, stage, whole, (table, state.y), None if stage else codes)
    assert rows.codes[:, stage].tolist() == known
    torch.testing.assert_close(state.y, table[torch.tensor(known, device=DEVICE)], rtol=0, atol=0)
    if not stage:
        seen[torch.arange(TEXTS), torch.tensor(known)] = 1
    assert torch.equal(rows.seen.cpu(), seen)


@torch.inference_mode()
@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_logits_that_are_not_finite_are_marked(number: float) -> None:
    """The next input takes the first code."""
    whole, random = config(), np.random.default_rng(1)
    state = state_of(random)
    logits = torch.from_numpy(random.normal(0, 2, (TEXTS, whole.vocab_size)).astype(np.float32)).to(DEVICE)
    logits[2, 3] = number
    table = torch.ones(whole.vocab_size, 32, device=DEVICE)
    table[0] = 7
    draw(logits, state.rows, 0, whole, (table, state.y), allowed())
    assert (state.rows.codes[:, 0] == -1).nonzero().flatten().tolist() == [2]
    assert (state.y[2] == 7).all()


@torch.inference_mode()
@pytest.mark.parametrize(
    "dtype",
    [
        "float32",
        pytest.param(
            "bfloat16",
            marks=pytest.mark.skipif(INTERPRETED, reason="the interpreter rounds towards zero"),
        ),
    ],
)
def test_embeddings_are_added_in_the_networks_order(dtype: str) -> None:
    """Equal to the bit; a text that has not drawn reads its last row."""
    built, random = network(dtype=dtype), np.random.default_rng(6)
    step, talker = FusedQwen3(built), built.talker
    state = Qwen3Captured.empty(built, torch.zeros(3, 4, dtype=torch.int64, device=DEVICE), 4)
    rows, codes = state.rows, torch.from_numpy(random.integers(0, 40, (4, 3))).to(DEVICE)
    codes[0, 0] = 1042  # the end of speech, which a text that stays reads
    rows.codes.copy_(codes)
    rows.steps.copy_(torch.tensor([3, 0, -1, 1]))
    rows.last.copy_(torch.from_numpy(random.normal(0, 1, rows.last.shape)))
    text = talker.embed_text(torch.tensor([5, 6, 7, 8], device=DEVICE))
    embed(rows, text, step.table, state.x, built.config)
    known = talker.embed_frames(codes[:, :, None])[:, 0] + text
    known[1:3] = rows.last[1:3]
    torch.testing.assert_close(state.x, known, rtol=0, atol=0)
