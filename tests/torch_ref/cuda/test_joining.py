"""Texts that join captured slots together: keys and values are those that the plain layers read of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.torch_ref.cuda.marks import DEVICE, kernel_marks

pytestmark = kernel_marks()  # before imports of modules that it skips

from tests.parity.mars5.test_slots import ROOM as LONG  # noqa: E402
from tests.parity.mars5.test_slots import text as cloned  # noqa: E402
from tests.tiny.mars5_ar import VOCABULARY  # noqa: E402
from tests.tiny.metavoice_texts import END_OF_TEXT, SAMPLINGS  # noqa: E402
from tests.tiny.metavoice_texts import text as voiced  # noqa: E402
from tests.tolerance import assert_within  # noqa: E402
from tests.torch_ref.cuda.dia.kernel_dia import network as conversing  # noqa: E402
from tests.torch_ref.cuda.dia.test_slots import text as said  # noqa: E402
from tests.torch_ref.cuda.dia2 import kernel_dia2  # noqa: E402
from tests.torch_ref.cuda.dia2.test_slots import talk  # noqa: E402
from tests.torch_ref.cuda.mars5.test_slots import network as autoregressive  # noqa: E402
from tests.torch_ref.cuda.metavoice.test_slots import network as first_stage  # noqa: E402
from torch_ref.cuda.batch import CapturedDecoder  # noqa: E402
from torch_ref.cuda.dia.decoder import CapturedDia  # noqa: E402
from torch_ref.cuda.dia.fused import FusedDecoder  # noqa: E402
from torch_ref.cuda.dia2.decoder import CapturedDia2  # noqa: E402
from torch_ref.cuda.dia2.step import FusedDia2  # noqa: E402
from torch_ref.cuda.mars5.decoder import CapturedMars5  # noqa: E402
from torch_ref.cuda.metavoice.decoder import CapturedMetaVoice  # noqa: E402
from torch_ref.dia.decoder import DiaDecoder  # noqa: E402
from torch_ref.dia2.decoder import Dia2Decoder  # noqa: E402
from torch_ref.mars5.decoder import Mars5Decoder  # noqa: E402
from torch_ref.metavoice.decoder import MetaVoiceDecoder  # noqa: E402

ROOM, SLOTS = 60, 5


class Case(NamedTuple):
    """layers: keys and values of each.  places: rows of a text in them, by slot.  plain: decoders that read
    texts by themselves, in float32 and in float64.
    """

    captured: CapturedDecoder
    layers: Sequence[tuple[Tensor, Tensor]]
    places: Callable[[int], Sequence[int]]
    texts: Mapping[int, Any]
    plain: tuple[Any, Any]


def dia2() -> Case:
    """Two texts have a prefix, of which the unconditional rows read the codes only."""
    built, exact = kernel_dia2.network(), kernel_dia2.network().double()
    captured = CapturedDia2(FusedDia2(built), texts=SLOTS, capacity=ROOM, guided=True)
    memory = captured.state.memory
    return Case(
        captured,
        [*zip(memory.keys, memory.values, strict=True)],
        lambda slot: (2 * slot, 2 * slot + 1),
        {slot: talk(built.config, seed) for slot, seed in ((3, 0), (1, 3), (0, 1))},
        (Dia2Decoder(built), Dia2Decoder(exact)),
    )


def metavoice(rows: int) -> Case:
    sampling = next(one for one in SAMPLINGS if one.rows == rows)
    built = deepcopy(first_stage()).to(DEVICE)  # the kernels join its weights
    exact = deepcopy(built).double()
    captured = CapturedMetaVoice(built, texts=SLOTS, rows=13, capacity=ROOM, end_of_text=END_OF_TEXT)
    captured.taken[2] = [1]  # of a text that is there
    return Case(
        captured,
        [(cache.keys, cache.values) for cache in captured.caches],
        lambda slot: captured.taken[slot],
        {slot: replace(voiced(slot).joining, sampling=sampling) for slot in (3, 0, 4)},
        (MetaVoiceDecoder(built, END_OF_TEXT), MetaVoiceDecoder(exact, END_OF_TEXT)),
    )


def dia(*, cross_rope: bool) -> Case:
    """Two of the texts have a recording; none is as long as another."""
    built, exact = (conversing(cross_rope=cross_rope) for _ in range(2))
    nothing = built.encode_empty()
    captured = CapturedDia(FusedDecoder(built, nothing), texts=SLOTS, capacity=ROOM, text_rows=40)
    texts = {slot: said(seed) for slot, seed in ((3, 0), (1, 1), (0, 3))}
    exact = exact.double()
    return Case(
        captured,
        [*zip(captured.memory.keys, captured.memory.values, strict=True)],
        lambda slot: (slot, SLOTS + slot),
        {slot: one.inputs(one.grid(built)) for slot, one in texts.items()},
        (DiaDecoder(built, nothing), DiaDecoder(exact, exact.encode_empty())),
    )


def mars5() -> Case:
    built = deepcopy(autoregressive()).to(DEVICE)
    exact = deepcopy(built).double()
    ids = {"lowest": VOCABULARY.lowest, "end": VOCABULARY.end}
    captured = CapturedMars5(built, texts=SLOTS, capacity=LONG, **ids)
    captured.open()
    return Case(
        captured,
        [(cache.keys, cache.values) for cache in captured.caches],
        lambda slot: (slot,),
        {slot: cloned(slot).joining for slot in (3, 0, 4)},
        (Mars5Decoder(built, capacity=LONG, **ids), Mars5Decoder(exact, capacity=LONG, **ids)),
    )


CASES: Mapping[str, Callable[[], Case]] = {
    "dia": lambda: dia(cross_rope=False),
    "dia with cross-attention by position": lambda: dia(cross_rope=True),
    "dia2": dia2,
    "mars5": mars5,
    "metavoice": lambda: metavoice(1),
    "metavoice of two rows": lambda: metavoice(2),
    "metavoice of three rows": lambda: metavoice(3),
}


@torch.inference_mode()
@pytest.mark.parametrize("name", CASES)
def test_keys_and_values_are_those_of_the_layers(name: str) -> None:
    """All other rows and positions stay zeros."""
    captured, layers, places, texts, plain = CASES[name]()
    assert captured.join(texts) == [text.positions for text in texts.values()]
    assert any(text.positions for text in texts.values())
    for slot, text in texts.items():
        known, true = ([*zip(*one.read([text])[0].keys, strict=True)] for one in plain)
        for which, kind in enumerate(("keys", "values")):
            for layer, pair in enumerate(layers):
                held = pair[which][[*places(slot)], :, : text.positions]
                own, exact = (one[which][layer].cpu().numpy() for one in (known, true))
                assert_within(held.cpu().numpy(), own, exact, f"{kind} of layer {layer}, slot {slot}")
                held = pair[which]
                held[[*places(slot)], :, : text.positions] = 0
    assert not any(np.any(one.cpu().numpy()) for pair in layers for one in pair)
