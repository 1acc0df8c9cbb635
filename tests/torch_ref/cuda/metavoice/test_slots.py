"""The captured slots draw the ids of plain single texts, on few rows and on many."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from tests.parity.metavoice.test_slots import END_OF_TEXT, ROOM, SAMPLINGS, Text, come_and_go, text
from tests.tiny.metavoice import first_stage_config, first_stage_weights
from tests.tiny.metavoice_lm import LanguageSide
from tests.torch_ref.cuda.eager import eager
from torch_ref.cuda.metavoice import slots
from torch_ref.cuda.triton import INTERPRETED, triton
from torch_ref.metavoice.first_stage import FirstStage
from torch_ref.metavoice.slots import MetaVoiceSlots
from tts_core.metavoice.sampling import FirstStageSampling

SIDE = LanguageSide("torch")
# heads of a power of two, which the kernels take
CONFIG = replace(
    first_stage_config(), hidden_size=48, num_attention_heads=3, intermediate_size=75, num_hidden_layers=2
)
WITH_INTERPRETER = pytest.mark.skipif(
    not INTERPRETED, reason="Triton's interpreter is off (TRITON_INTERPRET=1)"
)


@cache
def network() -> FirstStage:
    return SIDE.first_stage(first_stage_weights(CONFIG))


def alone(one: Text, count: int | None = None) -> list[int]:
    """The first ids of a text by plain steps on a CPU; by default all."""
    count = one.limit if count is None else count
    return SIDE.alone(network(), one.joining, count=count, end_of_text=END_OF_TEXT)


def captured(network: FirstStage, texts: int, rows: int) -> slots.MetaVoiceGraphSlots:
    return slots.MetaVoiceGraphSlots(network, texts=texts, rows=rows, room=ROOM, end_of_text=END_OF_TEXT)


@WITH_INTERPRETER
@pytest.mark.parametrize(
    "sampling",
    [
        pytest.param(SAMPLINGS[1], id="one row"),
        pytest.param(SAMPLINGS[0], marks=pytest.mark.slow, id="two rows"),  # minutes
        pytest.param(SAMPLINGS[3], marks=pytest.mark.slow, id="three rows"),
    ],
)
def test_one_text_in_the_interpreter(sampling: FirstStageSampling, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only two draws, since each takes seconds."""
    monkeypatch.setattr(slots, "capture", eager)
    shared, one = captured(network(), 1, sampling.rows), replace(text(3), sampling=sampling)
    assert len(shared.tokens) <= shared.layers.stack.most_few
    shared.join(0, one.joining)
    assert shared.read(shared.launch(2))[:, 0].tolist() == alone(one, 2)


@WITH_INTERPRETER
@pytest.mark.slow
def test_texts_come_and_go_in_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts of every sampling join and leave in one graph."""
    monkeypatch.setattr(slots, "capture", eager)
    texts = [
        replace(text(seed), sampling=sampling, limit=3 + seed % 4, drawn=[])
        for seed, sampling in enumerate([*SAMPLINGS, *SAMPLINGS])
    ]
    shared = captured(network(), 3, 7)
    assert len(shared.tokens) > shared.layers.stack.most_few
    graph, ended = shared.graph, come_and_go(SIDE, shared, texts, seed=1)
    assert shared.graph is graph
    assert len(ended) > 5
    for one in ended:
        assert one.drawn[: one.limit] == alone(one)


@WITH_INTERPRETER
def test_samplings_mix_in_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """One launch for texts of all samplings, of which one leaves; free slots draw 0."""
    monkeypatch.setattr(slots, "capture", eager)
    texts = [replace(text(seed), sampling=sampling) for seed, sampling in enumerate(SAMPLINGS)]
    shared = captured(network(), 5, 10)
    assert len(shared.tokens) > shared.layers.stack.most_few
    for slot, one in enumerate(texts):
        shared.join(slot, one.joining)
    drawn = shared.read(shared.launch(1))
    shared.leave(0)
    drawn = np.concatenate([drawn, shared.read(shared.launch(1))])
    assert drawn[1, 0] == 0
    assert drawn[:, 4].tolist() == [0, 0]
    for slot, one in enumerate(texts):
        count = 1 if slot == 0 else 2
        assert drawn[:count, slot].tolist() == alone(one, count)


@pytest.mark.cuda
@pytest.mark.parametrize(("count", "rows"), [(1, 3), (8, 18)])
def test_texts_come_and_go_on_a_gpu(count: int, rows: int) -> None:
    if triton is None:
        pytest.skip("Triton is not installed")
    texts = [text(seed) for seed in range(40)]
    shared = captured(copy.deepcopy(network()).to("cuda"), count, rows)
    ended = come_and_go(SIDE, shared, texts, seed=count)
    assert len(ended) > 25
    for one in ended:
        assert one.drawn[: one.limit] == alone(one)


@pytest.mark.cuda
@torch.inference_mode()
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_the_kernels_are_as_exact_as_the_layers(dtype: torch.dtype) -> None:
    """Rows at different positions, against the same weights in float64."""
    if triton is None:
        pytest.skip("Triton is not installed")
    own = copy.deepcopy(network()).to(device="cuda", dtype=dtype)
    exact = copy.deepcopy(own).cpu().double()
    texts = [text(seed) for seed in (3, 5, 8)]
    logits = {}
    for name, built, form in (
        ("kernels", own, slots.MetaVoiceGraphSlots),
        ("layers", own, MetaVoiceSlots),
        ("truth", exact, MetaVoiceSlots),
    ):
        shared = form(built, texts=3, rows=9, room=ROOM, end_of_text=END_OF_TEXT)
        for slot, one in enumerate(texts):
            shared.join(slot, one.joining)
        found = []
        for step in range(6):
            found.append(shared.logits()[: shared.plan.count].double().cpu())
            shared.tokens.fill_(100 + step)
            shared.plan.advance()
            if isinstance(shared, slots.MetaVoiceGraphSlots):
                shared.rows.positions.add_(1)
        logits[name] = torch.stack(found)
    off, plainly_off = ((logits[name] - logits["truth"]).norm() for name in ("kernels", "layers"))
    assert off < 1.5 * plainly_off + 1e-6
    assert plainly_off < 64 * torch.finfo(dtype).eps * logits["truth"].norm()


def test_the_cpu_takes_the_plain_form() -> None:
    made = slots.make_slots(network(), texts=1, rows=3, room=ROOM, end_of_text=END_OF_TEXT)
    assert type(made) is MetaVoiceSlots
    np.testing.assert_array_equal(made.speakers.shape, (3, 1, 48))
