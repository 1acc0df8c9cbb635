"""Texts in slots draw the ids of single plain runs, whenever they join and leave."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.tiny.dia_draws import draws
from tests.tiny.noise import GivenNoise
from tests.torch_ref.cuda.dia.kernel_dia import network
from tests.torch_ref.cuda.marks import DEVICE, kernel_marks
from torch_ref.cuda.batch import CapturedBatch
from torch_ref.cuda.dia.decoder import make_slots
from torch_ref.cuda.triton import INTERPRETED
from torch_ref.dia import decoder as plain
from torch_ref.dia.dia import Dia
from torch_ref.sampling import score_rows
from tts_core.dia.grid import DelayGrid, DiaInputs
from tts_core.dia.options import SAMPLER_0626, DiaSampling, allowed_ids
from tts_core.nn.noise import HostNoise, Noise

pytestmark = kernel_marks()
long = pytest.mark.skipif(INTERPRETED, reason="takes hours in Triton's interpreter")

SAMPLING = DiaSampling(cfg_scale=3.0, temperature=1.2, top_p=0.9, top_k=20)


@dataclass
class Text:
    """A text, and the grid that its draws fill."""

    tokens: np.ndarray
    prompt: np.ndarray | None
    frames: int
    sampling: DiaSampling
    noise: Noise
    drawn: list[np.ndarray] = field(default_factory=list)

    def grid(self, built: Dia) -> DelayGrid:
        return DelayGrid(built.config, self.prompt, self.frames)

    def inputs(self, grid: DelayGrid) -> DiaInputs:
        return DiaInputs.of(grid, self.tokens, self.sampling, self.noise)


def text(seed: int, *, sampling: DiaSampling = SAMPLING, noise: Noise | None = None) -> Text:
    random = np.random.default_rng(seed)
    tokens = random.integers(1, 200, int(random.integers(1, 30))).astype(np.int32)
    prompt = (
        random.integers(0, 60, (4, int(random.integers(1, 9)))).astype(np.int32) if seed % 3 == 0 else None
    )
    return Text(tokens, prompt, int(random.integers(5, 40)), sampling, noise or HostNoise(2**64 - 1 - seed))


def plainly(built: Dia, one: Text) -> np.ndarray:
    """Draws of a text by the plain loop, until its grid is done. (rows, C)."""
    return draws(built, one.tokens, one.grid(built), one.sampling, one.noise)


def slots_of(built: Dia, count: int, *, guided: bool = True, rows: int = 80) -> Any:
    nothing = built.encode_empty() if guided else None
    batch = make_slots(built, nothing, texts=count, capacity=rows, text_rows=40)
    assert type(batch) is CapturedBatch
    return batch


@long
@torch.inference_mode()
@pytest.mark.parametrize("cross_rope", [False, True])
@pytest.mark.parametrize(
    "settings", [{}, {"temperature": 0.0}, {"cfg_scale": 0.0}, {"top_k": 0, "top_p": 1.0}], ids=str
)
@pytest.mark.parametrize("count", [1, 5])
def test_draws_are_the_plain_ones(count: int, settings: dict, cross_rope: bool) -> None:
    built = network(cross_rope=cross_rope)
    sampling = DiaSampling(**(vars(SAMPLING) | settings))
    texts = [text(seed, sampling=sampling) for seed in range(count)]
    slots = slots_of(built, count, guided=sampling.cfg_scale != 0)
    for slot, one in enumerate(texts):
        slots.join({slot: one.inputs(one.grid(built))})
    drawn = np.concatenate([slots.read(slots.launch(7)) for _ in range(10)])
    for slot, one in enumerate(texts):
        expected = plainly(built, one)
        np.testing.assert_array_equal(drawn[: len(expected), slot], expected)


def arrivals(slots: Any, built: Dia, texts: list[Text], seed: int) -> Iterator[Text]:
    """Texts in random order of time: each joins a free slot and leaves when its grid is done."""
    random, waiting, running = np.random.default_rng(seed), list(texts), {}
    while waiting or running:
        for slot in range(slots.rows.slots):
            if slot not in running and waiting and random.random() < 0.5:
                one = waiting.pop(0)
                running[slot] = one, one.grid(built)
                slots.join({slot: one.inputs(running[slot][1])})
        if not running:
            continue
        rows = slots.read(slots.launch(int(random.integers(1, 6))))
        for slot, (one, grid) in list(running.items()):
            for ids in rows[:, slot]:
                if not grid.done:
                    one.drawn.append(ids)
                    grid.accept(ids)
            if grid.done:
                slots.leave(slot)
                del running[slot]
                yield one


@pytest.mark.slow
@torch.inference_mode()
@pytest.mark.parametrize("form", ["captured", "plain"])
@pytest.mark.parametrize("cross_rope", [False, True])
def test_short_texts_come_and_go(cross_rope: bool, form: str) -> None:
    """Few steps for Triton's interpreter; plain slots draw the same ids."""
    built = network(cross_rope=cross_rope)
    settings = [{}, {"temperature": 0.0}, {"cfg_scale": 1.5, "top_k": 5}, {"top_k": 0, "top_p": 1.0}]
    texts = [text(seed, sampling=replace(SAMPLING, **each)) for seed, each in enumerate(settings)]
    for one in texts:
        one.frames = 3
    texts[1].noise = GivenNoise(1)
    slots = slots_of(built, 2)
    if form == "plain":
        slots = plain.make_slots(built, built.encode_empty(), texts=2, capacity=80)
    assert len(list(arrivals(slots, built, texts, seed=2))) == len(texts)
    for one in texts:
        np.testing.assert_array_equal(np.stack(one.drawn), plainly(built, one))


@long
@torch.inference_mode()
@pytest.mark.parametrize("count", [1, 3, 8])
def test_texts_come_and_go(count: int) -> None:
    """Other lengths, prompts, settings and noise in each slot, one capture for all."""
    built, texts = network(), [text(seed) for seed in range(24)]
    for place in (1, 4, 7):
        texts[place].sampling = DiaSampling(cfg_scale=1.5, temperature=0.7, top_p=1.0, top_k=5)
        texts[place + 1].noise = GivenNoise(place)
    slots = slots_of(built, count)
    graphs, finished = dict(slots.graphs), list(arrivals(slots, built, texts, seed=count))
    assert slots.graphs == graphs
    assert len(finished) == len(texts)
    for one in texts:
        np.testing.assert_array_equal(np.stack(one.drawn), plainly(built, one))


@long
@torch.inference_mode()
def test_a_row_does_not_depend_on_the_batch() -> None:
    """Over 100,000 rows with the same history, drawn in a batch of 64 and one by one, are equal.

    They differ only if the two best candidates are within rounding.
    """
    built, texts, rows = network(positions=1700), 64, 1601
    random = np.random.default_rng(6)
    tokens = [random.integers(1, 200, int(random.integers(1, 40))).astype(np.int32) for _ in range(texts)]
    forced = random.integers(0, 60, (texts, rows, 4)).astype(np.int32)

    def drawn(members: list[int]) -> np.ndarray:
        slots, found = slots_of(built, len(members), rows=rows), []
        for slot, one in enumerate(members):
            slots.join({slot: DiaInputs(tokens[one], forced[one], 1, 0, rows, SAMPLING, HostNoise(one))})
        for _ in range(rows // 40):
            found.append(slots.read(slots.launch(40)).copy())
        return np.concatenate(found)

    together = drawn(list(range(texts)))
    single = np.concatenate([drawn([one]) for one in range(texts)], axis=1)
    assert together[..., 0].size > 100_000
    differing = np.argwhere(together != single)
    assert len(differing) <= 40  # of 409,600 draws
    exact = built.double()
    for row, one, channel in differing:
        known = torch.from_numpy(forced[one : one + 1, : row + 1]).to(DEVICE)
        source = exact.read([torch.from_numpy(tokens[one]).to(DEVICE)], exact.encode_empty())
        logits = exact.next_logits(torch.cat([known, known]), exact.new_cache(), source).cpu()
        codes = torch.from_numpy(allowed_ids(logits.shape[1], logits.shape[2], exact.config.eos_token_id))
        table = SAMPLER_0626.named(torch.from_numpy(SAMPLER_0626.table([SAMPLING])), 3)
        inputs = {"allowed": codes, "end": exact.config.eos_token_id}
        kept = score_rows((logits[:1], logits[1:]), table, SAMPLER_0626, **inputs).scores
        shape = tuple(kept.shape[1:])
        scores = (
            kept - torch.log(-torch.log(torch.from_numpy(HostNoise(int(one)).uniform(int(row), shape))))
        )[0]
        drawn_ids = [int(draws[row, one, channel]) for draws in (together, single)]
        near = torch.stack([scores[channel, drawn_id] for drawn_id in drawn_ids])
        edge = not near.isfinite().all()  # one of them is at the edge of top-k or top-p
        assert edge or (near[0] - near[1]).abs() < 1e-4


@long
@torch.inference_mode()
def test_a_free_slot_stays_where_it_is() -> None:
    """Longer than the grid has rows: nothing is written out of bounds, and a text may join afterwards."""
    built, one, other = network(), text(2), text(5)
    slots = slots_of(built, 2, rows=60)
    slots.join({0: other.inputs(other.grid(built))})
    slots.read(slots.launch(64))
    assert slots.decoder.rows.filled.tolist() == [59, 1]
    slots.leave(0)
    slots.join({1: one.inputs(one.grid(built))})
    expected = plainly(built, one)
    np.testing.assert_array_equal(slots.read(slots.launch(60))[: len(expected), 1], expected)
    assert slots.decoder.rows.filled.tolist() == [1, 59] or len(expected) < 60
