"""Texts in captured slots draw the frames of single plain runs, whenever they join and leave."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from tests.tiny.noise import GivenNoise
from tests.torch_ref.cuda.marks import kernel_marks
from tests.torch_ref.cuda.qwen3.kernel_qwen3 import config, network
from torch_ref.cuda.batch import CapturedBatch
from torch_ref.cuda.qwen3.decoder import make_slots
from torch_ref.cuda.qwen3.step import FusedQwen3
from torch_ref.qwen3 import decoder
from torch_ref.qwen3.qwen3 import Qwen3
from tts_core.nn.noise import HostNoise
from tts_core.qwen3.config import Qwen3Config
from tts_core.qwen3.layout import SPEAKER, Qwen3Choice, Qwen3Inputs, Qwen3Recording, Qwen3Sampling, build
from tts_core.speaking.running import WAITED, Running
from tts_core.speaking.speech import Slot

pytestmark = kernel_marks()

ROOM = 44
SAMPLINGS = (
    Qwen3Sampling(),
    Qwen3Sampling(Qwen3Choice(top_k=0, top_p=0.9), Qwen3Choice(temperature=1.3), 1.0),
    Qwen3Sampling(Qwen3Choice(is_greedy=True), Qwen3Choice(), 1.2),
    Qwen3Sampling(Qwen3Choice(), Qwen3Choice(is_greedy=True)),
)
shared = cache(network)


@dataclass(eq=False)
class Text:
    """A text, and the frames that it draws until its limit."""

    joining: Qwen3Inputs
    limit: int
    drawn: list[np.ndarray] = field(default_factory=list)


def text(whole: Qwen3Config, seed: int) -> Text:
    """In all samplings in turn; every other one reads its text with its frames. A clone has a recording."""
    random = np.random.default_rng(seed)
    ids = random.integers(0, 256, int(random.integers(9, 14))).tolist()
    voice: dict[str, Any] = {}
    recording = None
    if whole.mode == "base":
        recording = Qwen3Recording(tuple(random.integers(0, 256, 7).tolist()), 4)
        voice["frames"] = random.integers(0, whole.codebook_size, (whole.n_codebooks, 4)).astype(np.int32)
        voice["speaker"] = random.normal(0, 1, whole.talker.hidden_size).astype(np.float32)
    laid = build(
        whole,
        ids,
        language=None,
        voice=SPEAKER if voice else whole.speakers[0].id,
        recording=recording,
        streamed=bool(seed % 2),
    )
    noise = GivenNoise(seed) if seed == 1 else HostNoise(2**64 - 1 - seed)
    return Text(Qwen3Inputs(laid, SAMPLINGS[seed % len(SAMPLINGS)], noise, **voice), 1 + seed % 3)


def serve(slots: Any, texts: list[Text], *, places: int, seed: int | None = None) -> list[Text]:
    """Let all texts speak; with a seed, they come at random."""
    running, random = Running(slots, places), np.random.default_rng(seed)
    coming, there = [*texts], list[Slot]()
    while coming or there:
        while coming and len(there) < places and (seed is None or random.random() < 0.6):
            text = coming.pop(0)
            there.append(Slot(text.joining, owner=text))
            running.join(there[-1:])
        for slot, codes in running.advance():
            slot.owner.drawn.extend(codes)
            if len(slot.owner.drawn) == slot.owner.limit:
                running.leave(slot)
                there.remove(slot)
    return texts


def same(built: Qwen3, texts: list[Text]) -> None:
    """Equal to plain slots, one by one."""
    for one in texts:
        [other] = serve(decoder.make_slots(built, texts=1, capacity=ROOM), [replace(one, drawn=[])], places=1)
        np.testing.assert_array_equal(np.stack(one.drawn), np.stack(other.drawn))


@pytest.mark.parametrize("mode", ["base", "custom_voice"])
def test_draws_are_the_plain_ones(mode: str) -> None:
    """Few rows, of which the last text runs alone."""
    built = shared(mode)
    slots = make_slots(built, texts=2, capacity=ROOM)
    assert type(slots) is CapturedBatch
    same(built, serve(slots, [text(built.config, seed) for seed in (1, 2)], places=2))


@pytest.mark.slow
@pytest.mark.parametrize("places", [1, 3, 5])
def test_texts_come_and_go_without_a_new_capture(places: int) -> None:
    """Samplings differ within a batch; free slots leave no trace."""
    built = shared()
    slots = make_slots(built, texts=places, capacity=ROOM)
    assert type(slots) is CapturedBatch
    graphs = dict(slots.graphs)
    texts = [text(built.config, seed) for seed in range(2 * places + 2)]
    same(built, serve(slots, texts, places=places, seed=places))
    assert slots.graphs == graphs


def test_a_text_that_is_fed_waits() -> None:
    """A step that it waits in leaves its frame, its position and what it has seen as they are."""
    built = shared()
    whole, other = text(built.config, 3), text(built.config, 4)
    laid = replace(whole.joining.layout, trailing=(5, 6, 7))
    plain = decoder.make_slots(built, texts=1, capacity=ROOM)
    plain.join({0: replace(whole.joining, layout=laid)})
    expected = [plain.read(plain.launch(1))[0, 0] for _ in range(5)]

    slots = make_slots(built, texts=2, capacity=ROOM)
    slots.join({0: replace(whole.joining, layout=replace(laid, trailing=()), more=True)})
    slots.join({1: other.joining})
    drawn = list[np.ndarray]()
    for ids in ([5, 6], [7], []):
        for _ in range(3):
            codes = slots.read(slots.launch(1))[0, 0]
            drawn += [] if codes[0] == WAITED else [codes]
        slots.feed(0, ids, more=bool(ids))
    drawn += [slots.read(slots.launch(1))[0, 0] for _ in range(5 - len(drawn))]
    np.testing.assert_array_equal(np.stack(drawn), np.stack(expected))


def test_logits_that_are_not_finite_are_marked() -> None:
    """Those of the text that meets them; its neighbor goes on."""
    built, whole = network(), config()
    bad, good = text(whole, 2), text(whole, 4)
    [own, *_] = set(bad.joining.layout.text.tolist()) - set(good.joining.layout.text.tolist())
    with torch.no_grad():
        built.talker.model.text_embedding.weight[own] = torch.nan
    serve(make_slots(built, texts=2, capacity=ROOM), [bad, good], places=2)
    assert bad.drawn[0][0] == -1
    same(shared(), [good])


@torch.inference_mode()
def test_weights_are_stored_once() -> None:
    built = network()
    before = {name: one.clone() for name, one in built.state_dict().items()}
    FusedQwen3(built)
    for name, one in built.state_dict().items():
        torch.testing.assert_close(one, before[name], rtol=0, atol=0)
    talker: Any = built.talker
    layer, last = talker.model.layers[0], talker.code_predictor.model.codec_embedding[-1]
    for one, other in (
        (layer.self_attn.q_proj, layer.self_attn.v_proj),
        (layer.mlp.gate_proj, layer.mlp.up_proj),
        (talker.model.codec_embedding, last),
    ):
        assert one.weight.untyped_storage().data_ptr() == other.weight.untyped_storage().data_ptr()
