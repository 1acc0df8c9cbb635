"""Division of prompts into padded passes: which rows each reads, and where keys are kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from torch_ref.cuda.prompts import PromptRows, passes, shapes
from tts_core.dia import footprint as dia
from tts_core.dia.model import MODEL as DIA
from tts_core.dia2 import footprint as dia2
from tts_core.dia2.model import MODEL as DIA2
from tts_core.mars5 import footprint as mars5
from tts_core.mars5.model import MODEL as MARS5
from tts_core.memory.footprint import LEAST, TOGETHER, read_at_once
from tts_core.memory.machine import Machine
from tts_core.metavoice import footprint as metavoice
from tts_core.metavoice.model import MODEL as METAVOICE
from tts_core.qwen3 import footprint as qwen3
from tts_core.qwen3.model import MODEL as QWEN3


def prompts(counts: list[int]) -> list[PromptRows]:
    return [PromptRows(sum(counts[:place]), count, 50 + place) for place, count in enumerate(counts)]


@pytest.mark.parametrize(
    ("counts", "shapes"),
    [
        ([40], [(1, 64)]),
        ([40, 33, 64], [(4, 64)]),
        ([1, 40, 5], [(2, LEAST), (1, 64)]),
        ([60] * 32, [(16, 64)] * 2),
        ([60] * 17, [(16, 64), (1, 64)]),
        ([0, 3, 0], [(1, LEAST)]),
        ([0], []),
        ([TOGETHER, 900], [(1, 1024)] * 2),
        ([TOGETHER + 1, 1500], [(1, 1280), (1, 1536)]),
    ],
    ids=str,
)
def test_shapes(counts: list[int], shapes: list[tuple[int, int]]) -> None:
    """Powers of two, of at most TOGETHER positions; beyond them one prompt by itself."""
    found = [(len(one.spots), len(one.rows)) for one in passes(prompts(counts))]
    assert [(texts, rows // texts) for texts, rows in found] == shapes


def test_every_row_is_read_once_and_kept_in_its_place() -> None:
    random = np.random.default_rng(4)
    given, kept = prompts(random.integers(0, 90, 37).tolist()), dict[int, list[int]]()
    for one in passes(given):
        places, counts = one.spots.T
        for place, count, rows in zip(places, counts, one.rows.reshape(len(places), -1), strict=True):
            if count:
                assert int(place) not in kept
                kept[int(place)] = rows[:count].tolist()
                assert (rows[count:] == rows[count - 1]).all(), "what fills it up is a row of its own"
    assert kept == {one.row: [*range(one.first, one.first + one.count)] for one in given if one.count}


@pytest.mark.parametrize("counts", [[7], [40] * 5, [12, 40, 33], [300] * 9, [1500, 3, 3]], ids=str)
def test_plans_count_the_largest_pass(counts: list[int]) -> None:
    largest = max(len(one.rows) for one in passes(prompts(counts)))
    planned = read_at_once(len(counts), max(counts), "torch-cuda")
    assert largest <= planned
    assert len({*counts}) > 1 or largest == planned


@pytest.mark.parametrize(("texts", "room"), [(96, 4096), (1, 50), (3, 300), (40, TOGETHER)], ids=str)
def test_all_shapes_of_captured_passes(texts: int, room: int) -> None:
    """Those of any texts, each once; each fits in the memory of the first one."""
    found, random = shapes(texts, room), np.random.default_rng(texts)
    for _ in range(200):
        longest = random.integers(1, room + 1)
        counts = random.integers(1, 1 + longest, random.integers(1, 1 + texts)).tolist()
        for one in passes(prompts(counts)):
            shape = len(one.spots), len(one.rows) // len(one.spots)
            assert shape in found or shape[0] * shape[1] > TOGETHER
    assert len({*found}) == len(found)
    sizes = [count * length for count, length in found]
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize(
    ("plan", "model", "job"),
    [
        (qwen3.PLAN, QWEN3, lambda prompt: qwen3.Qwen3Job(20, prompt=prompt)),
        (dia.PLAN, DIA, lambda prompt: dia.DiaJob(prompt, 20)),
        (dia2.PLAN, DIA2, lambda prompt: dia2.Dia2Job(20, prefix_frames=prompt, guided=False)),
        (mars5.PLAN, MARS5, lambda prompt: mars5.Mars5Job(prompt - 1, 20, batch=2)),
        (metavoice.PLAN, METAVOICE, lambda prompt: metavoice.MetaVoiceJob(prompt, 20, rows=1)),
    ],
    ids=["qwen3", "dia", "dia2", "mars5", "metavoice"],
)
def test_plans_count_what_captured_passes_keep(plan: Any, model: Any, job: Any) -> None:
    """As long as a pass is captured."""
    configs, kept = next(iter(model.sizes.values())), dict[int, int]()
    for prompt in (40, 64, 128, TOGETHER, 2 * TOGETHER):
        kept[prompt] = plan.footprint(configs, job(prompt), Machine("bfloat16", "torch-cuda")).graphs
    assert 0 < kept[40] <= kept[64] < kept[128] < kept[TOGETHER] == kept[2 * TOGETHER]
    assert plan.footprint(configs, job(40), Machine("bfloat16", "mlx-metal")).graphs == 0
