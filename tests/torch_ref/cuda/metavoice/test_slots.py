"""The captured slots draw the ids of plain single texts, on few rows and on many."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.tiny.metavoice_lm import LanguageSide
from tests.tiny.metavoice_texts import END_OF_TEXT, ROOM, SAMPLINGS, Text, come_and_go, text
from tests.tiny.networks import first_stage_config, tiny
from tests.torch_ref.cuda.eager import uncaptured
from torch_ref.batch import RunningBatch
from torch_ref.cuda import batch
from torch_ref.cuda.batch import CapturedBatch
from torch_ref.cuda.metavoice.decoder import CapturedMetaVoice, make_slots
from torch_ref.cuda.triton import INTERPRETED, triton
from torch_ref.metavoice import decoder as plain
from torch_ref.metavoice.first_stage import FirstStage
from tts_core.metavoice.inputs import FirstStageSampling
from tts_core.speaking.running import WAITED

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
    return SIDE.first_stage(tiny(CONFIG))


def alone(one: Text, count: int | None = None) -> list[int]:
    """The first ids of a text by plain steps on a CPU; by default all."""
    count = one.limit if count is None else count
    return SIDE.alone(network(), one.joining, count=count, end_of_text=END_OF_TEXT)


def captured(network: FirstStage, texts: int, rows: int) -> CapturedBatch:
    form = CapturedMetaVoice(network, texts=texts, rows=rows, capacity=ROOM, end_of_text=END_OF_TEXT)
    return CapturedBatch(form, texts=texts, capacity=ROOM)


def decoder(shared: CapturedBatch) -> CapturedMetaVoice:
    assert isinstance(shared.decoder, CapturedMetaVoice)
    return shared.decoder


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
    uncaptured(monkeypatch, batch)
    shared, one = captured(network(), 1, sampling.rows), replace(text(3), sampling=sampling)
    assert len(decoder(shared).state.tokens) <= decoder(shared).layers.stack.most_few
    shared.join({0: one.joining})
    assert shared.read(shared.launch(2))[:, 0].tolist() == alone(one, 2)


@WITH_INTERPRETER
@pytest.mark.slow
def test_texts_come_and_go_in_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts of every sampling join and leave in one graph."""
    uncaptured(monkeypatch, batch)
    texts = [
        replace(text(seed), sampling=sampling, limit=3 + seed % 4, drawn=[])
        for seed, sampling in enumerate([*SAMPLINGS, *SAMPLINGS])
    ]
    shared = captured(network(), 3, 9)
    assert len(decoder(shared).state.tokens) > decoder(shared).layers.stack.most_few
    graphs, ended = dict(shared.graphs), come_and_go(shared, texts, seed=1)
    assert shared.graphs == graphs
    assert len(ended) > 5
    for one in ended:
        assert one.drawn[: one.limit] == alone(one)


@WITH_INTERPRETER
def test_samplings_mix_in_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """One launch for texts of all samplings, of which one leaves; free slots draw nothing."""
    uncaptured(monkeypatch, batch)
    texts = [replace(text(seed), sampling=sampling) for seed, sampling in enumerate(SAMPLINGS)]
    shared = captured(network(), 5, 8)
    assert len(decoder(shared).state.tokens) > decoder(shared).layers.stack.most_few
    for slot, one in enumerate(texts):
        shared.join({slot: one.joining})
    drawn = shared.read(shared.launch(1))
    shared.leave(0)
    drawn = np.concatenate([drawn, shared.read(shared.launch(1))])
    assert drawn[1, 0] == WAITED
    assert drawn[:, 4].tolist() == [WAITED] * 2
    for slot, one in enumerate(texts):
        count = 1 if slot == 0 else 2
        assert drawn[:count, slot].tolist() == alone(one, count)


@pytest.mark.cuda
@pytest.mark.parametrize(("count", "rows"), [(1, 3), (8, 24)])
def test_texts_come_and_go_on_a_gpu(count: int, rows: int) -> None:
    if triton is None:
        pytest.skip("Triton is not installed")
    texts = [text(seed) for seed in range(40)]
    shared = captured(copy.deepcopy(network()).to("cuda"), count, rows)
    ended = come_and_go(shared, texts, seed=count)
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
    for name, built in (("kernels", own), ("layers", own), ("truth", exact)):
        shared = (
            captured(own, 3, 9)
            if name == "kernels"
            else plain.make_slots(built, texts=3, capacity=ROOM, end_of_text=END_OF_TEXT)
        )
        for slot, one in enumerate(texts):
            shared.join({slot: one.joining})
        logits[name] = torch.stack([computed(shared, texts, 100 + step) for step in range(6)])
    off, plainly_off = ((logits[name] - logits["truth"]).norm() for name in ("kernels", "layers"))
    assert off < 1.5 * plainly_off + 1e-6
    assert plainly_off < 64 * torch.finfo(dtype).eps * logits["truth"].norm()


def computed(shared: RunningBatch, texts: list[Text], following: int) -> Tensor:
    """Logits of each text's rows, after which all go on with one id. → (R, V) float64."""
    if isinstance(shared, CapturedBatch):
        form = decoder(shared)
        found = form.logits()[[row for slot in range(len(texts)) for row in form.taken[slot]]]
        form.state.tokens.fill_(following)
        form.state.positions.add_(1)
    else:
        shared.rows.begin()
        made = shared._made()
        found = torch.cat([made[: one.sampling.rows, slot] for slot, one in enumerate(texts)])
        shared.state = shared.state._replace(tokens=torch.full_like(shared.state.tokens, following))
        shared.rows.end()
    return found.double().cpu()


def test_the_cpu_takes_the_plain_form() -> None:
    made = make_slots(network(), texts=1, rows=3, capacity=ROOM, end_of_text=END_OF_TEXT)
    assert type(made) is RunningBatch
