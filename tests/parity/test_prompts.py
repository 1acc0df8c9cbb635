"""Texts that are read in one pass have on a CPU, bit for bit, what each has alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.golden.dia2_bench import build as dia2_side
from tests.sides import Side
from tests.tiny.dia2_texts import GivenText
from tests.tiny.mars5_ar import VOCABULARY, deep_prompt, reference
from tests.tiny.metavoice_lm import LanguageSide
from tests.tiny.networks import ar_config, dia_config, first_stage_config, other_config, qwen3_config, tiny
from tts_core.dia.grid import DelayGrid, DiaInputs
from tts_core.dia.options import DiaSampling
from tts_core.dia2.inputs import Dia2Choice, Dia2Sampling
from tts_core.mars5.inputs import Mars5Inputs
from tts_core.mars5.options import Mars5Options
from tts_core.metavoice.config import END_OF_AUDIO
from tts_core.metavoice.inputs import FirstStageSampling, MetaVoiceInputs
from tts_core.nn.noise import HostNoise
from tts_core.nn.packed import Packed, ring
from tts_core.qwen3.layout import FRAME, SPEAKER, Qwen3Inputs, Qwen3Sampling, build

Case = tuple[Any, list[Any]]  # a running batch, and texts that may join it
LENGTHS = 1, 9, 4, 9, 23, 2
SAMPLING = DiaSampling(cfg_scale=3.0, temperature=1.2, top_p=0.95, top_k=20)
RANDOM = np.random.default_rng


def dia(side: str, *, cross_rope: bool = False) -> Case:
    config = dia_config(cross_rope=cross_rope)
    network = Side(side).network("dia", tiny(config, seed=3))
    slots = Side(side).module("dia.decoder").make_slots(network, network.encode_empty(), texts=6, capacity=80)
    texts = list[Any]()
    for seed, length in enumerate(LENGTHS):
        prompt = RANDOM(seed).integers(0, 60, (4, length)).astype(np.int32) if seed % 3 else None
        tokens = RANDOM(seed).integers(1, 200, 3 * length).astype(np.int32)
        texts.append(DiaInputs.of(DelayGrid(config, prompt, 9), tokens, SAMPLING, HostNoise(seed)))
    return slots, texts


def dia_with_positions_of_text(side: str) -> Case:
    return dia(side, cross_rope=True)


def dia2(side: str) -> Case:
    config, choice = other_config(), Dia2Choice(2.0, 9, 0.6, 2)
    slots = dia2_side(side, tiny(config, seed=6)).batch(6)
    steps = RANDOM(3).integers(0, 30, (6, 23, 2 + config.n_streams)).astype(np.int32)
    sampling = Dia2Sampling(choice, choice)
    return slots, [
        GivenText(own, sampling, HostNoise(1), own[: length - 1], length - 1)
        for own, length in zip(steps, LENGTHS, strict=True)
    ]


def mars5(side: str, *, window: int | None = None) -> Case:
    config = ar_config() if window is None else ar_config(sliding_window=window)
    network = Side(side).network("mars5", tiny(config, seed=3))
    make = Side(side).module("mars5.decoder").make_slots
    slots = make(network, texts=6, capacity=90, lowest=VOCABULARY.lowest, end=VOCABULARY.end)
    texts, codes = list[Any](), [reference(5, config, 1), reference(8, config, 2)]
    for seed, length in enumerate(LENGTHS):
        own = codes[seed % 2]
        prompt = deep_prompt(own) if seed == 2 else VOCABULARY.shallow("thenisro "[:length] * 3)
        texts.append(Mars5Inputs(prompt, own, Mars5Options(), HostNoise(seed)))
    return slots, texts


def mars5_in_a_small_window(side: str) -> Case:
    return mars5(side, window=7)


def metavoice(side: str, sampling: FirstStageSampling | None = None) -> Case:
    lm = LanguageSide(side)
    network, end = lm.first_stage(tiny(first_stage_config())), END_OF_AUDIO + 40
    slots = lm.module("metavoice.decoder").make_slots(network, texts=6, capacity=59, end_of_text=end)
    return slots, [
        MetaVoiceInputs(
            RANDOM(seed).integers(END_OF_AUDIO + 1, end, length).astype(np.int32),
            RANDOM(seed).normal(size=10).astype(np.float32),
            sampling or FirstStageSampling(),
            HostNoise(seed),
        )
        for seed, length in enumerate(LENGTHS)
    ]


def metavoice_of_three_rows(side: str) -> Case:
    return metavoice(side, FirstStageSampling(2.5, 1.5, 0.9, 0.9, rule="slow"))


def qwen3(side: str) -> Case:
    """Every second text with a recording: its vector, and for some its frames."""
    config = qwen3_config("base")
    network = Side(side).network("qwen3", tiny(config))
    slots = Side(side).module("qwen3.decoder").make_slots(network, texts=6, capacity=100)
    texts = list[Any]()
    for seed, length in enumerate(LENGTHS):
        random = RANDOM(seed)
        layout = build(config, random.integers(0, 256, 9 + length).tolist(), language=None, streamed=True)
        given = Qwen3Inputs(layout, Qwen3Sampling(), HostNoise(seed))
        if seed % 2:
            codec = np.append(layout.codec, [SPEAKER, FRAME, FRAME][: seed + 1]).astype(np.int32)
            text = np.append(layout.text, [7] * (len(codec) - len(layout.codec))).astype(np.int32)
            frames = random.integers(0, 40, (config.n_codebooks, int((codec == FRAME).sum())))
            given = replace(
                given,
                layout=replace(layout, text=text, codec=codec),
                speaker=random.normal(size=config.talker.hidden_size).astype(np.float32),
                frames=frames.astype(np.int32),
            )
        texts.append(given)
    return slots, texts


CASES: Sequence[Callable[[str], Case]] = (
    *(dia, dia_with_positions_of_text, dia2, mars5, mars5_in_a_small_window),
    *(metavoice, metavoice_of_three_rows, qwen3),
)
every_case = pytest.mark.parametrize("case", CASES, ids=lambda one: one.__name__)
every_side = pytest.mark.parametrize("side", ["torch", "mlx"])


def arrays(side: str, read: Any) -> list[np.ndarray]:
    """All that was read of a text, as NumPy's."""
    found = list[np.ndarray]()

    def add(x: Any) -> None:
        if isinstance(x, tuple | list):
            for each in x:
                add(each)
        elif x is not None:
            found.append(Side(side).numpy(x))

    add(read)
    return found


@every_side
@every_case
def test_a_text_is_read_as_it_is_alone(case: Callable[[str], Case], side: str) -> None:
    slots, texts = case(side)
    with Side(side).inference():
        together = slots.decoder.read(texts)
        alone = [slots.decoder.read([text])[0] for text in texts]
    for text, one, other in zip(texts, together, alone, strict=True):
        for own, expected in zip(arrays(side, one), arrays(side, other), strict=True):
            np.testing.assert_array_equal(own, expected)
        [keys, *_] = one.keys[-1]
        assert keys.shape[0] == text.rows


@every_side
@every_case
def test_texts_that_join_together_draw_what_they_draw_one_after_the_other(
    case: Callable[[str], Case], side: str
) -> None:
    """Beside one that has begun, with its slot among theirs."""
    drawn = dict[bool, np.ndarray]()
    for at_once in (True, False):
        slots, texts = case(side)
        slots.join({2: texts[2]})
        others = {slot: text for slot, text in enumerate(texts) if slot != 2}
        slots.read(slots.launch(1))
        for group in [others] if at_once else [{slot: text} for slot, text in others.items()]:
            slots.join(group)
        drawn[at_once] = np.concatenate([slots.read(slots.launch(1)) for _ in range(4)])
    np.testing.assert_array_equal(drawn[True], drawn[False])


@every_side
@every_case
def test_if_a_text_cannot_be_read_none_joins(case: Callable[[str], Case], side: str) -> None:
    """The one that runs goes on as alone."""
    drawn = dict[bool, np.ndarray]()
    for fails in (True, False):
        slots, texts = case(side)
        slots.join({2: texts[2]})
        if fails:
            reserve, slots._reserve = slots._reserve, lambda positions: 1 // 0
            with pytest.raises(ZeroDivisionError):
                slots.join({0: texts[0], 1: texts[1]})
            slots._reserve = reserve
            assert [*slots.rows.texts] == [2]
        drawn[fails] = np.concatenate([slots.read(slots.launch(1)) for _ in range(3)])[:, 2]
    np.testing.assert_array_equal(drawn[True], drawn[False])


def test_where_packed_sequences_are() -> None:
    packed = Packed.of((2, 0, 3))
    assert packed.spans == [slice(0, 2), slice(2, 2), slice(2, 5)]
    assert (packed.filled, packed.total) == ([slice(0, 2), slice(2, 5)], 5)
    assert packed.positions.tolist() == [0, 1, 0, 1, 2]
    assert [part.rows for part in packed.everywhere(np.asarray).mask] == packed.filled
    assert ring(slice(2, 9), 4).tolist() == [6, 7, 8, 5]
