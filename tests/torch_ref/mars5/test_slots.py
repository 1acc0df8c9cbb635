"""The captured form of the slots draws the ids of single plain runs, with and without kernels."""

from __future__ import annotations

import copy
from functools import cache

import pytest
import torch

from tests.parity.mars5.test_slots import ROOM, Text, come_and_go, text
from tests.sides import YARDSTICK
from tests.tiny.mars5_ar import VOCABULARY, ar_config, ar_weights
from tests.torch_ref.cuda.eager import eager
from torch_ref.cuda.launch import INTERPRETED, triton
from torch_ref.mars5 import slots
from torch_ref.mars5.ar_loop import extend
from torch_ref.mars5.codec_lm import CodecLM
from torch_ref.mars5.many_rows import runs
from tts_core.mars5.config import is_norm
from tts_core.mars5.sequence import CodecSequence


@cache
def network(window: int = 3000) -> CodecLM:
    """Its heads have 16 numbers, which the kernels take."""
    return YARDSTICK.network("mars5", ar_weights(ar_config(sliding_window=window), seed=3))


def alone(network: CodecLM, one: Text) -> list[int]:
    """Ids of the plain loop on a CPU, the end included."""
    given = one.joining
    sequence = CodecSequence(given.prompt, VOCABULARY, given.options.max_len)
    for _ in extend(network, given.codes, sequence, given.options, given.noise):
        pass
    return [*sequence.generated, *[VOCABULARY.end] * sequence.ended]


def captured(network: CodecLM, texts: int) -> slots.GraphSlots:
    return slots.GraphSlots(network, texts=texts, room=ROOM, lowest=VOCABULARY.lowest, end=VOCABULARY.end)


@pytest.mark.parametrize("window", [3000, 50])
def test_texts_come_and_go_without_a_new_capture(window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The work that a graph replays, without a graph or kernels."""
    monkeypatch.setattr(slots, "capture", eager)
    monkeypatch.setattr(slots, "runs", lambda _: False)
    built, texts = network(window), [text(seed) for seed in range(16)]
    shared = captured(built, 3)
    graph, ended = shared.graph, come_and_go(YARDSTICK, shared, texts, seed=1)
    assert shared.graph is graph
    assert len(ended) > 10
    for one in ended:
        assert one.drawn[: one.limit] == alone(built, one)


@pytest.mark.skipif(not INTERPRETED, reason="Triton's interpreter is off (TRITON_INTERPRET=1)")
def test_kernels_in_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a few draws, since each takes seconds."""
    monkeypatch.setattr(slots, "capture", eager)
    texts = [text(seed) for seed in (4, 7)]
    shared = captured(copy.deepcopy(network()), 2)
    assert shared.layers is not None
    for slot, one in enumerate(texts):
        shared.join(slot, one.joining)
    drawn = shared.read(shared.launch(3))
    for slot, one in enumerate(texts):
        expected = alone(network(), one)[:3]
        assert drawn[: len(expected), slot].tolist() == expected


@pytest.mark.cuda
@pytest.mark.parametrize("window", [3000, 50])
@pytest.mark.parametrize("kernels", [True, False], ids=["kernels", "layers"])
@pytest.mark.parametrize("count", [1, 8])
def test_texts_come_and_go_on_a_gpu(
    count: int, kernels: bool, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kernels and triton is None:
        pytest.skip("Triton is not installed")
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
    monkeypatch.setattr(slots, "runs", lambda _: kernels)
    built, texts = network(window), [text(seed) for seed in range(30)]
    shared = captured(copy.deepcopy(built).to("cuda"), count)
    ended = come_and_go(YARDSTICK, shared, texts, seed=count)
    assert len(ended) > 16
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
    own = copy.deepcopy(network())
    for name, parameter in own.named_parameters():
        parameter.data = parameter.data.to("cuda", torch.float32 if is_norm(name) else dtype)
    exact = copy.deepcopy(own).cpu().double()
    texts = [text(seed) for seed in (1, 4, 7)]
    logits = {}
    for name, built, form in (
        ("kernels", own.to("cuda"), slots.GraphSlots),
        ("layers", own.to("cuda"), slots.Slots),
        ("truth", exact, slots.Slots),
    ):
        shared = form(built, texts=3, room=ROOM, lowest=VOCABULARY.lowest, end=VOCABULARY.end)
        for slot, one in enumerate(texts):
            shared.join(slot, one.joining)
        found = []
        for step in range(6):
            found.append(shared.logits(shared.plan.step().positions).double().cpu())
            shared.tokens.fill_(VOCABULARY.lowest + step)
        logits[name] = torch.stack(found)
    off, plainly_off = ((logits[name] - logits["truth"]).norm() for name in ("kernels", "layers"))
    assert off < 1.5 * plainly_off + 1e-6
    assert plainly_off < 64 * torch.finfo(dtype).eps * logits["truth"].norm()


def test_the_cpu_takes_the_plain_form() -> None:
    made = slots.make_slots(network(), texts=1, room=ROOM, lowest=VOCABULARY.lowest, end=VOCABULARY.end)
    assert type(made) is slots.Slots
    assert runs(network()) == INTERPRETED
