"""Prompts that join together: keys and values of the plain layers, and the draws of each text alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.tolerance import assert_within
from tests.torch_ref.cuda.marks import DEVICE, kernel_marks
from tests.torch_ref.cuda.qwen3.kernel_qwen3 import network
from tests.torch_ref.cuda.qwen3.test_slots import ROOM, same, text
from torch_ref.cuda import prompts
from torch_ref.cuda.batch import CapturedBatch
from torch_ref.cuda.fused_stack import StackMemory
from torch_ref.cuda.prompts import PromptReader, PromptRows
from torch_ref.cuda.qwen3.decoder import CapturedQwen3, make_slots
from torch_ref.cuda.qwen3.step import FusedQwen3, Qwen3Captured
from torch_ref.host import Host
from torch_ref.qwen3.decoder import embedded
from torch_ref.qwen3.qwen3 import Qwen3
from tts_core.qwen3.layout import Qwen3Inputs

pytestmark = kernel_marks()

TEXTS = 3


def alone(built: Qwen3, one: Qwen3Inputs) -> list[np.ndarray]:
    """Keys and values of each layer, (2, K, T, E), of the plain layers."""
    talker = built.talker
    cache = talker.new_cache()
    talker(embedded(talker, Host(talker.codec_head), [one]), 0, cache)
    pairs = [held.buffers for held in cache if held.buffers is not None]
    return [torch.stack(pair)[:, 0, :, : one.positions - 1].cpu().numpy() for pair in pairs]


@torch.inference_mode()
@pytest.mark.parametrize("mode", ["base", "custom_voice"])
def test_keys_and_values_are_those_of_the_layers(mode: str) -> None:
    """In places of another order than the texts'; other rows of memory stay zeros."""
    built, exact = network(mode), network(mode).double()
    fused, host = FusedQwen3(built), Host(built.talker.codec_head)
    state = Qwen3Captured.empty(built, torch.zeros(3, TEXTS + 1, dtype=torch.int64, device=DEVICE), ROOM)
    given = [text(built.config, seed).joining for seed in range(TEXTS)]
    firsts = np.cumsum([0, *(one.positions for one in given)])
    prompts = [
        PromptRows(int(first), one.positions - 1, TEXTS - place)
        for place, (first, one) in enumerate(zip(firsts, given, strict=False))
    ]
    PromptReader(fused.trunk, state.memory, host)(embedded(built.talker, host, given)[0], prompts)
    for one, prompt in zip(given, prompts, strict=True):
        for layer, (known, true) in enumerate(zip(alone(built, one), alone(exact, one), strict=True)):
            held: list[Tensor] = [state.memory.keys[layer], state.memory.values[layer]]
            own = torch.stack([each[prompt.row] for each in held]).cpu()
            assert_within(own[:, :, : prompt.count].numpy(), known, true, f"layer {layer}")
            assert not own[:, :, prompt.count :].any()
    assert not any(each[0].any() for each in (*state.memory.keys, *state.memory.values))


def test_texts_that_join_together_draw_as_alone() -> None:
    """Beside one that has begun, with its slot among theirs."""
    built = network("base")
    slots = make_slots(built, texts=TEXTS, capacity=ROOM)
    texts = {slot: text(built.config, seed) for slot, seed in enumerate((3, 1, 5))}
    slots.join({1: texts[1].joining})
    texts[1].drawn.append(slots.read(slots.launch(1))[0, 1])
    slots.join({slot: texts[slot].joining for slot in (2, 0)})
    codes = slots.read(slots.launch(1))[0]
    for slot, one in texts.items():
        one.drawn.append(codes[slot])
        one.limit = len(one.drawn)
    same(built, [*texts.values()])


def test_if_a_text_cannot_be_read_none_joins(monkeypatch: pytest.MonkeyPatch) -> None:
    built = network()
    slots = make_slots(built, texts=2, capacity=ROOM)
    given = {slot: text(built.config, slot).joining for slot in range(2)}
    with monkeypatch.context() as patch:
        patch.setattr(PromptReader, "__call__", lambda *inputs: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            slots.join(given)
    assert not slots.rows.texts
    slots.join(given)
    assert [*slots.rows.texts] == [0, 1]


@torch.inference_mode()
def test_passes_that_are_captured_ahead_keep_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a text that runs. Shapes that were read before are there already."""
    if DEVICE == "cpu":  # the interpreter is slow
        monkeypatch.setattr(prompts, "TOGETHER", 32)
    built, read = network(), list[tuple[int, ...]]()
    slots = make_slots(built, texts=TEXTS, capacity=ROOM)
    assert isinstance(slots, CapturedBatch)
    assert isinstance(slots.decoder, CapturedQwen3)
    one, reader = text(built.config, 1), slots.decoder.reader
    slots.join({1: one.joining})
    held = [each.clone() for each in (*reader.memory.keys, *reader.memory.values)]
    run = reader.stack.read

    def counted(x: Tensor, spots: Tensor, memory: StackMemory) -> tuple[Tensor, Tensor | None]:
        read.append((len(spots), len(x)))
        return run(x, spots, memory)

    monkeypatch.setattr(reader.stack, "read", counted)
    slots.prepare()
    assert {(count, count * length) for count, length in prompts.shapes(TEXTS, ROOM)} >= {*read} != set()
    for before, after in zip(held, (*reader.memory.keys, *reader.memory.values), strict=True):
        torch.testing.assert_close(after, before, rtol=0, atol=0)
    for _ in range(2):
        one.drawn.append(slots.read(slots.launch(1))[0, 1])
    one.limit = len(one.drawn)
    same(built, [one])
    if DEVICE != "cpu":
        read.clear()
        slots.join({slot: text(built.config, slot).joining for slot in (0, 2)})
        assert not read, "replayed"
