"""The kernel that draws ids against torch_ref.sampling, over several ids of each text."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.torch_ref.cuda.marks import DEVICE, kernel_marks
from torch_ref.cuda.mars5.draws import EMPTY, Mars5Draws, draw_ids
from torch_ref.sampling import draw_rows
from tts_core.mars5.inputs import PENALTIES_ABOVE, SAMPLER, allowed_ids, numbers
from tts_core.mars5.options import Mars5Options

pytestmark = kernel_marks()

VOCABULARY, LOWEST, END, WIDTH, IDS = 90, 31, 89, 70, 12
FREE = Mars5Options(temperature=1.0, top_k=0, top_p=1.0, rep_penalty_window=3)
SETTINGS = {
    "defaults": Mars5Options(top_p=0.6),
    "every filter": Mars5Options(temperature=1.1, top_k=20, top_p=0.9, typical_p=0.8, rep_penalty_window=5),
    "typical alone": replace(FREE, typical_p=0.4),
    "one id": replace(FREE, top_k=1),
    "free": FREE,
    "greedy": Mars5Options(temperature=0.0, freq_penalty=0.5),
}


def state(options: list[Mars5Options], penalties: torch.Tensor) -> Mars5Draws:
    texts, ring = len(options), max(one.rep_penalty_window for one in options)

    def whole(*shape: int, value: int = 0, kind: torch.dtype = torch.int32) -> torch.Tensor:
        return torch.full(shape, value, dtype=kind, device=DEVICE)

    return Mars5Draws(
        positions=whole(texts, kind=torch.int64),
        step=whole(texts, kind=torch.int64),
        counts=whole(texts, VOCABULARY),
        recent=whole(texts, ring, value=EMPTY),
        window=torch.tensor([one.rep_penalty_window for one in options], dtype=torch.int32, device=DEVICE),
        uniform=torch.full((1, texts), 0.3, device=DEVICE),
        penalties=penalties,
        drawn=whole(texts, value=-7),
        rows=torch.zeros(texts, WIDTH, device=DEVICE),
        settings=torch.from_numpy(SAMPLER.table(map(numbers, options))).to(DEVICE),
    )


@torch.inference_mode()
def test_ids_are_those_of_the_rules() -> None:
    """Texts of every setting. Ids repeat; one in the window counts until it leaves."""
    options, random = [*SETTINGS.values()], np.random.default_rng(4)
    texts, penalties = len(options), torch.linspace(3, 0, IDS, device=DEVICE).repeat(len(options), 1)
    table = torch.from_numpy(random.normal(0, 1, (VOCABULARY, WIDTH)).astype(np.float32)).to(DEVICE)
    own, expected = state(options, penalties), [list[int]() for _ in options]
    allowed = torch.from_numpy(allowed_ids(VOCABULARY, LOWEST)).to(DEVICE)
    for step in range(IDS):
        logits = torch.from_numpy(random.normal(0, 2, (texts, VOCABULARY)).astype(np.float32)).to(DEVICE)
        logits[:, 40:44] += 4
        logits[:, 5] = 50.0  # of text: never drawn
        own.step.fill_(step)
        own.uniform.copy_(torch.from_numpy(random.random((1, texts), np.float32)))
        counts = torch.zeros(texts, VOCABULARY, device=DEVICE)
        for row, (one, ids) in enumerate(zip(options, expected, strict=True)):
            for id in ids[-one.rep_penalty_window :] if step > PENALTIES_ABOVE else []:
                counts[row, id] += 1
        inputs = {"allowed": allowed, "counts": counts, "penalty": penalties[:, step : step + 1]}
        columns = SAMPLER.named(own.settings, 2)
        drawn = draw_rows([logits], columns, own.uniform.T, SAMPLER, end=END, **inputs)
        draw_ids(logits, table, own, lowest=LOWEST, end=END)
        assert own.drawn.tolist() == drawn.tolist(), step
        assert torch.equal(own.rows, table[drawn])
        for ids, id in zip(expected, drawn.tolist(), strict=True):
            ids.append(id)
    for row, (one, ids) in enumerate(zip(options, expected, strict=True)):
        left = torch.bincount(torch.tensor(ids[-one.rep_penalty_window :]), minlength=VOCABULARY)
        assert own.counts[row].tolist() == left.tolist()
    assert len({tuple(ids) for ids in expected}) == texts


@torch.inference_mode()
@pytest.mark.parametrize("place", [3, 60], ids=["of text", "of speech"])
@pytest.mark.parametrize("number", [torch.nan, torch.inf, -torch.inf])
def test_logits_that_are_no_numbers(number: float, place: int) -> None:
    """And a text that takes no part keeps its id."""
    logits = torch.zeros(3, VOCABULARY, device=DEVICE)
    logits[0, place] = number
    own = state([FREE] * 3, torch.zeros(3, IDS, device=DEVICE))
    own.step[2] = -1
    draw_ids(logits, torch.ones(VOCABULARY, WIDTH, device=DEVICE), own, lowest=LOWEST, end=END)
    assert own.drawn[0] == -1
    assert own.drawn[1] >= LOWEST
    assert own.drawn[2] == -7
    assert own.rows.isfinite().all()
