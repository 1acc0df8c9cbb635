"""The captured form of the slots draws the ids of single plain runs, with and without kernels."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from tests.parity.metavoice.test_slots import END_OF_TEXT, ROOM, Text, come_and_go, text
from tests.tiny.metavoice import first_stage_config, first_stage_weights
from tests.tiny.metavoice_lm import LanguageSide
from tests.torch_ref.cuda.eager import eager
from torch_ref.cuda.launch import INTERPRETED, triton
from torch_ref.metavoice import slots
from torch_ref.metavoice.first_stage import FirstStage
from torch_ref.metavoice.first_stage_loop import generate_tokens
from torch_ref.metavoice.many_rows import runs
from tts_core.nn.noise import HostNoise

SIDE = LanguageSide("torch")
# heads of a power of two, which the kernels take
CONFIG = replace(
    first_stage_config(), hidden_size=48, num_attention_heads=3, intermediate_size=75, num_hidden_layers=2
)


@cache
def network(*, kernels: bool) -> FirstStage:
    return SIDE.first_stage(first_stage_weights(CONFIG if kernels else first_stage_config()))


def alone(network: FirstStage, one: Text) -> list[int]:
    """Ids of the plain loop on a CPU, until the limit."""
    [made] = generate_tokens(
        network,
        [one.ids],
        one.vector[None],
        sampling=one.sampling,
        limits=[one.limit],
        noise=[HostNoise(one.seed)],
        end_of_text=END_OF_TEXT,
        end_of_audio=-5,
    )
    return made[len(one.ids) :].tolist()


def captured(network: FirstStage, texts: int, rows: int) -> slots.GraphSlots:
    return slots.GraphSlots(network, texts=texts, rows=rows, room=ROOM, end_of_text=END_OF_TEXT)


def test_texts_come_and_go_without_a_new_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work that a graph replays, without a graph."""
    monkeypatch.setattr(slots, "capture", eager)
    built, texts = network(kernels=False), [text(seed) for seed in range(16)]
    shared = captured(built, 3, 7)
    assert shared.layers is None
    graph, ended = shared.graph, come_and_go(SIDE, shared, texts, seed=1)
    assert shared.graph is graph
    assert len(ended) > 10
    for one in ended:
        assert one.drawn[: one.limit] == alone(built, one)


@pytest.mark.skipif(not INTERPRETED, reason="Triton's interpreter is off (TRITON_INTERPRET=1)")
def test_kernels_in_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a few draws, since each takes seconds."""
    monkeypatch.setattr(slots, "capture", eager)
    built, texts = network(kernels=True), [text(seed) for seed in (3, 5)]
    shared = captured(copy.deepcopy(built), 2, 6)
    assert shared.layers is not None
    for slot, one in enumerate(texts):
        shared.join(slot, one.joining)
    drawn = shared.read(shared.launch(3))
    for slot, one in enumerate(texts):
        assert drawn[:, slot].tolist() == alone(built, one)[:3]


@pytest.mark.cuda
@pytest.mark.parametrize("kernels", [True, False], ids=["kernels", "layers"])
@pytest.mark.parametrize(("count", "rows"), [(1, 3), (8, 18)])
def test_texts_come_and_go_on_a_gpu(
    count: int, rows: int, kernels: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kernels and triton is None:
        pytest.skip("Triton is not installed")
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
    built, texts = network(kernels=kernels), [text(seed) for seed in range(40)]
    shared = captured(copy.deepcopy(built).to("cuda"), count, rows)
    assert (shared.layers is not None) == kernels
    ended = come_and_go(SIDE, shared, texts, seed=count)
    assert len(ended) > 25
    for one in ended:
        assert one.drawn[: one.limit] == alone(built, one)


@pytest.mark.cuda
@torch.inference_mode()
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_the_kernels_are_as_exact_as_the_layers(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows at different positions, against the same weights in float64."""
    if triton is None:
        pytest.skip("Triton is not installed")
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
    own = copy.deepcopy(network(kernels=True)).to(device="cuda", dtype=dtype)
    exact = copy.deepcopy(own).cpu().double()
    texts = [text(seed) for seed in (3, 5, 8)]
    logits = {}
    for name, built, form in (
        ("kernels", own, slots.GraphSlots),
        ("layers", own, slots.Slots),
        ("truth", exact, slots.Slots),
    ):
        shared = form(built, texts=3, rows=9, room=ROOM, end_of_text=END_OF_TEXT)
        for slot, one in enumerate(texts):
            shared.join(slot, one.joining)
        found = []
        for step in range(6):
            found.append(shared.logits()[: shared.plan.count].double().cpu())
            shared.tokens.fill_(100 + step)
            shared.plan.advance()
        logits[name] = torch.stack(found)
    off, plainly_off = ((logits[name] - logits["truth"]).norm() for name in ("kernels", "layers"))
    assert off < 1.5 * plainly_off + 1e-6
    assert plainly_off < 64 * torch.finfo(dtype).eps * logits["truth"].norm()


def test_the_cpu_takes_the_plain_form() -> None:
    built = network(kernels=True)
    made = slots.make_slots(built, texts=1, rows=3, room=ROOM, end_of_text=END_OF_TEXT)
    assert type(made) is slots.Slots
    assert runs(built) == INTERPRETED
    np.testing.assert_array_equal(made.speakers.shape, (3, 1, 48))
