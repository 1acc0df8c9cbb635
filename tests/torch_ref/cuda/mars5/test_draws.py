"""The kernel that draws an id against torch_ref.mars5.sampling, over several ids of a text."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.torch_ref.cuda.marks import DEVICE, kernel_marks
from torch_ref.cuda.mars5.draws import EMPTY, Mars5Draws, draw_ids
from torch_ref.mars5.sampling import occurrences
from torch_ref.sampling import draw_rows
from tts_core.mars5.options import Mars5Options
from tts_core.mars5.sampling import PENALTIES_ABOVE, SAMPLER, numbers

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


def state(options: Mars5Options, penalties: torch.Tensor) -> Mars5Draws:
    """Of two texts, of which the first takes no part."""

    def whole(*shape: int, value: int, kind: torch.dtype = torch.int32) -> torch.Tensor:
        return torch.full(shape, value, dtype=kind, device=DEVICE)

    settings = torch.from_numpy(SAMPLER.table([numbers(options)] * 2)).to(DEVICE)
    return Mars5Draws(
        step=torch.tensor([-1, 0], device=DEVICE),
        uniform=torch.full((1, 2), 0.5, device=DEVICE),
        counts=whole(2, VOCABULARY, value=0),
        recent=whole(2, IDS, value=EMPTY),
        windows=whole(2, value=options.rep_penalty_window),
        penalties=torch.stack((torch.zeros_like(penalties), penalties)),
        ids=whole(2, value=-7, kind=torch.int64),
        row=torch.zeros(2, WIDTH, device=DEVICE),
        settings=settings,
    )


@torch.inference_mode()
@pytest.mark.parametrize("name", SETTINGS)
def test_ids_are_those_of_the_rules(name: str) -> None:
    """Ids repeat, so that penalties matter; an id in the window is counted until it leaves."""
    options, random = SETTINGS[name], np.random.default_rng(4)
    logits = torch.from_numpy(random.normal(0, 2, (IDS, VOCABULARY)).astype(np.float32)).to(DEVICE)
    logits[:, 40:44] += 4
    logits[:, 5] = 50.0  # of text: never drawn
    uniform = torch.from_numpy(random.random(IDS, np.float32)).to(DEVICE)
    penalties = torch.linspace(3, 0, IDS, device=DEVICE)
    table = torch.from_numpy(random.normal(0, 1, (VOCABULARY, WIDTH)).astype(np.float32)).to(DEVICE)
    own = state(options, penalties)
    expected: list[int] = []
    for place in range(IDS):
        own.step[1], own.uniform[0, 1] = place, uniform[place]
        draw_ids(logits[place].expand(2, -1).contiguous(), table, own, lowest=LOWEST, end=END)
        recent = expected[-options.rep_penalty_window :] if place > PENALTIES_ABOVE else []
        counts = occurrences(torch.tensor([recent], dtype=torch.long, device=DEVICE), VOCABULARY)
        inputs = {"allowed": torch.arange(VOCABULARY, device=DEVICE) >= LOWEST, "counts": counts}
        inputs["penalty"] = penalties[place, None, None]
        numbers_of = SAMPLER.named(own.settings[1:], 2)
        drawn = draw_rows(
            [logits[place : place + 1]],
            numbers_of,
            uniform[place, None, None],
            SAMPLER,
            end=END,
            **inputs,
        )
        expected.append(int(drawn))
        assert torch.equal(own.row[1], table[expected[-1]])
        assert own.ids.tolist() == [-7, expected[-1]]
    assert not own.row[0].any()
    assert not own.counts[0].any()
    left = occurrences(torch.tensor([expected[-options.rep_penalty_window :]], device=DEVICE), VOCABULARY)
    assert torch.equal(own.counts[1], left[0].int())
    assert len(set(expected)) > 2


@torch.inference_mode()
@pytest.mark.parametrize("place", [3, 60], ids=["of text", "of speech"])
@pytest.mark.parametrize("number", [torch.nan, torch.inf, -torch.inf])
def test_logits_that_are_no_numbers(number: float, place: int) -> None:
    logits = torch.zeros(2, VOCABULARY, device=DEVICE)
    logits[1, place] = number
    own = state(FREE, torch.zeros(IDS, device=DEVICE))
    table = torch.ones(VOCABULARY, WIDTH, device=DEVICE)
    draw_ids(logits, table, own, lowest=LOWEST, end=END)
    assert own.ids.tolist() == [-7, -1]
    assert own.row.isfinite().all()
