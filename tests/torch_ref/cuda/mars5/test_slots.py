"""The captured forms of the slots draw the ids of single plain runs, on kernels or on the layers."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.parity.mars5.test_slots import ROOM, SETTINGS, Text, come_and_go, text
from tests.sides import YARDSTICK
from tests.tiny.mars5_ar import VOCABULARY, reference
from tests.tiny.mars5_draws import extend
from tests.tiny.networks import ar_config, tiny
from tests.torch_ref.cuda.eager import eager, uncaptured
from torch_ref.batch import RunningBatch
from torch_ref.cuda import batch
from torch_ref.cuda.batch import CapturedBatch
from torch_ref.cuda.mars5 import decoder
from torch_ref.cuda.mars5.decoder import CapturedMars5, make_slots
from torch_ref.cuda.mars5.draws import EMPTY, Mars5Draws
from torch_ref.cuda.mars5.rows import FirstRows, runs
from torch_ref.cuda.prompts import PromptRows
from torch_ref.cuda.triton import INTERPRETED, triton
from torch_ref.guard import marked
from torch_ref.layers.rope import RotaryPositions
from torch_ref.layers.row_cache import RowCache
from torch_ref.mars5 import decoder as plain
from torch_ref.mars5.codec_lm import CodecLM
from torch_ref.sampling import draw_rows
from tts_core.mars5.config import is_norm
from tts_core.mars5.inputs import PENALTIES_ABOVE, SAMPLER, CodecSequence, Mars5Inputs, allowed_ids
from tts_core.mars5.options import Mars5Options
from tts_core.nn.noise import HostNoise


@cache
def network(window: int = 3000) -> CodecLM:
    """Its heads have 16 numbers, which the kernels take."""
    return YARDSTICK.network("mars5", tiny(ar_config(sliding_window=window), seed=3))


def alone(network: CodecLM, one: Text) -> list[int]:
    """Ids of plain slots on a CPU, the end included."""
    given = one.joining
    sequence = CodecSequence(given.prompt, VOCABULARY, given.options.max_len)
    for _ in extend(YARDSTICK, network, given.codes, sequence, given.options, given.noise):
        pass
    return [*sequence.generated, *[VOCABULARY.end] * sequence.ended]


def captured(network: CodecLM, texts: int) -> CapturedBatch:
    form = CapturedMars5(network, texts=texts, capacity=ROOM, lowest=VOCABULARY.lowest, end=VOCABULARY.end)
    return CapturedBatch(form, texts=texts, capacity=ROOM)


def opened(network: CodecLM, texts: int) -> RunningBatch:
    return make_slots(network, texts=texts, capacity=ROOM, lowest=VOCABULARY.lowest, end=VOCABULARY.end)


class PlainRows:
    """In place of Mars5Rows."""

    def __init__(
        self,
        network: CodecLM,
        caches: list[RowCache],
        rotary: RotaryPositions,
        positions: Tensor,
        *,
        most_few: int,
    ):
        self.network, self.caches, self.rotary, self.positions = network, caches, rotary, positions
        self.stack, self.memory = self, caches

    def head(self, x: Tensor) -> Tensor:
        return self.network.head(self.network.ar.norm(x))

    def __call__(self, x: Tensor) -> Tensor:
        at = self.caches[0].at
        at.move(self.positions, at.capacity)
        rotation = self.rotary(self.positions[:, None, None], 1)
        made = self.network.next_logits(x[:, None], rotation, self.caches)
        x.fill_(torch.nan)  # it overwrites the rows
        return made


class PlainReader:
    """In place of PromptReader."""

    def __init__(self, stack: PlainRows, memory: list[RowCache], host: Any, *, most: int):
        self.stack, self.memory = stack, memory

    def __call__(self, x: Tensor, prompts: Sequence[PromptRows]) -> Tensor:
        made = list[Tensor]()
        for one in prompts:
            rows, rotation = x[None, one.first : one.first + one.count], self.stack.rotary(0, one.count)
            for layer, held in zip(self.stack.network.ar.layers, self.memory, strict=True):
                rows = layer(rows, rotation, FirstRows(3000, held, one.row))
            made.append(rows[:, -1])
        return torch.cat(made)


def draw_ids(logits: Tensor, table: Tensor, state: Mars5Draws, *, lowest: int, end: int) -> None:
    """In place of the kernel."""
    for slot in (state.step >= 0).nonzero().flatten().tolist():
        now, window = int(state.step[slot]), int(state.window[slot])
        recent = state.recent[slot, :window]
        seen = recent[(recent != EMPTY) & (now > PENALTIES_ABOVE)].long()
        if now > PENALTIES_ABOVE:
            assert torch.equal(state.counts[slot].long(), seen.bincount(minlength=len(table)))
        place = min(now, state.penalties.shape[1] - 1)
        penalty = state.penalties[slot : slot + 1, place : place + 1]
        counts = seen.bincount(minlength=len(table)).float()[None]
        inputs = {"allowed": torch.from_numpy(allowed_ids(len(table), lowest)), "counts": counts}
        own, own_logits = SAMPLER.named(state.settings[slot : slot + 1], 2), logits[slot : slot + 1]
        [id] = draw_rows(
            [own_logits], own, state.uniform[:, slot : slot + 1], SAMPLER, penalty=penalty, end=end, **inputs
        )
        id = marked(id[None, None], own_logits[:, None])[0, 0]
        known, place = id.clamp(min=0), now % window
        if recent[place] != EMPTY:
            state.counts[slot, recent[place].long()] -= 1
        state.counts[slot, known] += 1
        recent[place], state.drawn[slot], state.rows[slot] = known, id, table[known]


def fill_uniform(out: Tensor, seeds: Tensor, steps: Tensor, first: int, count: int) -> None:
    """In place of the kernel."""
    for slot, step in enumerate(steps.tolist()):
        seed = int(np.int64(seeds[slot].item()).astype(np.uint64))
        drawn = HostNoise(seed).uniform(max(step, 0), tuple(out.shape[2:]))
        out[0, slot] = torch.from_numpy(drawn) if step >= 0 else 0.5


@pytest.fixture
def plain_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "Mars5Rows", PlainRows)
    monkeypatch.setattr(decoder, "PromptReader", PlainReader)
    monkeypatch.setattr(decoder, "draw_ids", draw_ids)
    monkeypatch.setattr(batch, "capture", eager)
    monkeypatch.setattr(batch, "compile_together", lambda calls: None)
    monkeypatch.setattr(batch, "fill_uniform", fill_uniform)


@pytest.mark.usefixtures("plain_kernels")
@pytest.mark.parametrize("window", [3000, 50])
def test_texts_come_and_go_without_a_new_capture(window: int) -> None:
    """The work that a graph replays, without a graph or kernels."""
    built, texts = network(window), [text(seed) for seed in range(16)]
    shared = captured(built, 3)
    graphs, ended = dict(shared.graphs), come_and_go(shared, texts, seed=1)
    assert shared.graphs == graphs
    assert len(ended) > 10
    for one in ended:
        assert one.drawn[: one.limit] == alone(built, one)


@pytest.mark.usefixtures("plain_kernels")
@pytest.mark.parametrize("window", [3000, 50, 16])
def test_texts_come_and_go_in_a_single_slot(window: int) -> None:
    """The work that its graph replays, without kernels. The ring wraps in the prompt, after it and never."""
    built, texts = network(window), [text(seed) for seed in range(16)]
    ended = come_and_go(captured(built, 1), texts, seed=1)
    assert len(ended) > 10
    assert {one.joining.options.temperature for one in ended} >= {one.temperature for one in SETTINGS}
    for one in ended:
        assert one.drawn[: one.limit] == alone(built, one)


@pytest.mark.usefixtures("plain_kernels")
@pytest.mark.parametrize("window", [3000, 16])
def test_texts_that_join_together_draw_as_alone(window: int) -> None:
    """Those of a voice have it encoded once; prompts are longer than the window, and shorter."""
    built, texts = network(window), {slot: text(seed) for slot, seed in ((3, 2), (0, 5), (2, 7), (1, 9))}
    texts[1].joining = replace(texts[1].joining, codes=texts[3].joining.codes)
    expected = {slot: alone(built, one) for slot, one in texts.items()}
    shared, encoded = captured(built, 4), built.spk_encoder
    with counting(encoded) as calls:
        shared.join({slot: one.joining for slot, one in texts.items()})
        assert len(calls) == 3
        shared.leave(1)
        shared.join({1: texts[1].joining})
        assert len(calls) == 3
    drawn = np.concatenate([shared.read(shared.launch(4)) for _ in range(3)])
    assert {len(one.joining.prompt.tokens) < 16 for one in texts.values()} == {True, False}
    for slot, one in texts.items():
        count = min(one.limit, len(expected[slot]), len(drawn))
        assert drawn[:count, slot].tolist() == expected[slot][:count]


@contextmanager
def counting(module: torch.nn.Module) -> Iterator[list[object]]:
    calls = list[object]()
    handle = module.register_forward_hook(lambda *given: calls.append(given[0]))
    yield calls
    handle.remove()


@pytest.mark.usefixtures("plain_kernels")
def test_a_single_slot_past_the_end_of_its_text() -> None:
    one, slot = text(7), captured(network(), 1)
    slot.join({0: one.joining})
    drawn = [row for _ in range(30) for row in slot.read(slot.launch(4))[:, 0].tolist()]
    expected = alone(network(), one)
    assert drawn[: len(expected)] == expected
    slot.leave(0)
    assert isinstance(slot.decoder, CapturedMars5)
    assert (slot.decoder.caches, slot.graphs) == ([], {})


@pytest.mark.usefixtures("plain_kernels")
def test_logits_that_are_no_numbers() -> None:
    weights = tiny("mars5", seed=3)
    weights.tensors["embed.weight"][VOCABULARY.shallow("x").tokens[1]] = np.nan
    slot = captured(YARDSTICK.network("mars5", weights), 1)
    options = Mars5Options(generate_max_len_override=ROOM)
    slot.join({0: Mars5Inputs(VOCABULARY.shallow("x"), reference(5, ar_config()), options, HostNoise(1))})
    assert slot.read(slot.launch(4))[:, 0].tolist() == [-1] * 4


@pytest.mark.skipif(not INTERPRETED, reason="Triton's interpreter is off (TRITON_INTERPRET=1)")
def test_kernels_of_a_single_slot_in_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a few draws, since each takes seconds."""
    uncaptured(monkeypatch, batch)
    one, slot = text(4), captured(copy.deepcopy(network(16)), 1)
    slot.join({0: one.joining})
    expected = alone(network(16), one)[:4]
    assert slot.read(slot.launch(4))[: len(expected), 0].tolist() == expected


@pytest.mark.cuda
@pytest.mark.parametrize("window", [3000, 50, 16])
def test_texts_come_and_go_in_a_single_slot_on_a_gpu(window: int) -> None:
    if triton is None:
        pytest.skip("Triton is not installed")
    built, texts = network(window), [text(seed) for seed in range(30)]
    slot = opened(copy.deepcopy(built).to("cuda"), 1)
    assert type(slot) is CapturedBatch
    ended = come_and_go(slot, texts, seed=1)
    assert len(ended) > 16
    for one in ended:
        assert one.drawn[: one.limit] == alone(built, one)


@pytest.mark.skipif(not INTERPRETED, reason="Triton's interpreter is off (TRITON_INTERPRET=1)")
def test_kernels_in_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a few draws, since each takes seconds."""
    uncaptured(monkeypatch, batch)
    texts = [text(seed) for seed in (4, 7)]
    shared = captured(copy.deepcopy(network()), 2)
    for slot, one in enumerate(texts):
        shared.join({slot: one.joining})
    drawn = shared.read(shared.launch(3))
    for slot, one in enumerate(texts):
        expected = alone(network(), one)[:3]
        assert drawn[: len(expected), slot].tolist() == expected


@pytest.mark.slow
@pytest.mark.skipif(not INTERPRETED, reason="Triton's interpreter is off (TRITON_INTERPRET=1)")
@pytest.mark.parametrize("window", [3000, 16])
@pytest.mark.parametrize("count", [1, 3])
def test_texts_come_and_go_in_the_interpreter(
    count: int, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few ids of texts of every sampling."""
    uncaptured(monkeypatch, batch)
    texts = [one for one in map(text, range(150)) if 3 < one.limit < 8]
    some = [one for place, one in enumerate(texts) if sampling_of(one) not in map(sampling_of, texts[:place])]
    assert len(some) == len(SETTINGS)
    some += [next(one for one in texts[5:] if one not in some)]
    shared = opened(copy.deepcopy(network(window)), count)
    assert type(shared) is CapturedBatch
    ended = come_and_go(shared, some, seed=count)
    assert len(ended) >= len(SETTINGS)
    for one in ended:
        assert one.drawn[: one.limit] == alone(network(window), one)


def sampling_of(one: Text) -> float:
    return one.joining.options.temperature


@pytest.mark.cuda
@pytest.mark.parametrize("window", [3000, 50])
@pytest.mark.parametrize("count", [1, 8])
def test_texts_come_and_go_on_a_gpu(count: int, window: int) -> None:
    if triton is None:
        pytest.skip("Triton is not installed")
    built, texts = network(window), [text(seed) for seed in range(30)]
    shared = captured(copy.deepcopy(built).to("cuda"), count)
    ended = come_and_go(shared, texts, seed=count)
    assert len(ended) > 16
    for one in ended:
        assert one.drawn[: one.limit] == alone(built, one)


@pytest.mark.cuda
@torch.inference_mode()
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_the_kernels_are_as_exact_as_the_layers(dtype: torch.dtype) -> None:
    """Rows at different positions, against the same weights in float64."""
    if triton is None:
        pytest.skip("Triton is not installed")
    own = copy.deepcopy(network())
    for name, parameter in own.named_parameters():
        parameter.data = parameter.data.to("cuda", torch.float32 if is_norm(name) else dtype)
    exact = copy.deepcopy(own).cpu().double()
    texts = [text(seed) for seed in (1, 4, 7)]
    logits = {}
    for name, built in (("kernels", own.to("cuda")), ("layers", own.to("cuda")), ("truth", exact)):
        ids = {"lowest": VOCABULARY.lowest, "end": VOCABULARY.end}
        shared: RunningBatch = plain.make_slots(built, texts=3, capacity=ROOM, **ids)
        if name == "kernels":
            shared = captured(built, 3)
        for slot, one in enumerate(texts):
            shared.join({slot: one.joining})
        found = [computed(shared, VOCABULARY.lowest + step) for step in range(7)]
        logits[name] = torch.stack(found[1:])  # the first are the prompt's, drawn from as it is read
    off, plainly_off = ((logits[name] - logits["truth"]).norm() for name in ("kernels", "layers"))
    assert off < 1.5 * plainly_off + 1e-6
    assert plainly_off < 64 * torch.finfo(dtype).eps * logits["truth"].norm()


def computed(shared: RunningBatch, following: int) -> Tensor:
    """Logits of each text, after which all go on with one id. → (N, V) float64."""
    shared.rows.begin()
    if isinstance(shared, CapturedBatch):
        form = shared.decoder
        assert isinstance(form, CapturedMars5)
        form.inputs[1] = torch.from_numpy(shared.rows.positions()).long()
        found = form.layers(form.state.rows).double().cpu()
        form.state.rows.copy_(form.network.embed.weight[following])
    else:
        found = shared._made().double().cpu()
        shared.state = shared.state._replace(tokens=torch.full_like(shared.state.tokens, following))
    shared.rows.end()
    return found


@pytest.mark.usefixtures("plain_kernels")
@pytest.mark.parametrize("count", [1, 2])
def test_the_form_where_kernels_run_and_elsewhere(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert runs(network()) == INTERPRETED
    for usable in (True, False):
        monkeypatch.setattr(decoder, "runs", lambda _, usable=usable: usable)
        assert type(opened(network(), count)) is (CapturedBatch if usable else RunningBatch)
