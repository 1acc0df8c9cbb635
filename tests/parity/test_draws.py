"""One draw a side for all models: rows of any settings together, each as it is by itself."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import torch_ref
from mlx_port.sampling import Draw as MlxDraw
from tests.draws import draw
from tests.sides import PORT, YARDSTICK
from torch_ref.sampling import Draw as TorchDraw
from tts_core.dia import options as dia
from tts_core.dia2 import inputs as dia2
from tts_core.dia2.inputs import Dia2Choice
from tts_core.mars5 import inputs as mars5
from tts_core.mars5.options import Mars5Options
from tts_core.metavoice import inputs as metavoice
from tts_core.metavoice.inputs import FirstStageSampling
from tts_core.nn.sampling import OFF, Sampler, columns
from tts_core.qwen3 import layout as qwen3
from tts_core.qwen3.layout import Qwen3Choice

IDS, END, TEXTS = 64, 60, 40


@dataclass(frozen=True)
class Model:
    """guidance: rows of it.  inputs: of a draw of TEXTS rows; `once` are not a row each."""

    sampler: Sampler
    settings: list[Any]
    guidance: int = 1
    inputs: dict[str, Any] = field(default_factory=dict)
    once: tuple[str, ...] = ("allowed", "end")


def numbers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(1e-6, 1 - 1e-6, shape).astype(np.float32)


DIA = [
    dia.DiaSampling(3.0, 1.2, 0.95, 45),
    dia.DiaSampling(3.0, 0.0, 0.95, 45),
    dia.DiaSampling(0.0, 1.0, 1.0, 0),
    dia.DiaSampling(7.5, 2.0, 0.5, 63),
]
DIA_INPUTS = {"allowed": dia.allowed_ids(1, IDS, END)[0], "end": END}
DIA2 = [
    one.numbers
    for one in (
        Dia2Choice(2.0, 9, 0.8, 8),
        Dia2Choice(1.0, 9, 0.8, 8),
        Dia2Choice(6.0, 9, 0.0, 8),
        Dia2Choice(0.3, 5, 1.5, 0),
    )
]
QWEN3 = [
    Qwen3Choice(top_k=9).numbers(1.3),
    Qwen3Choice(is_greedy=True).numbers(),
    Qwen3Choice(temperature=1.4, top_k=9, top_p=0.5).numbers(0.8),
    Qwen3Choice(top_k=0, top_p=0.8).numbers(),
]
COUNTS = np.random.default_rng(1).integers(0, 3, (TEXTS, IDS)).astype(np.float32)
MODELS = {
    "dia 0626": Model(dia.SAMPLER_0626, DIA, 2, DIA_INPUTS),
    "dia v0.1": Model(dia.SAMPLER_V01, DIA, 2, DIA_INPUTS),
    "dia2": Model(dia2.SAMPLER, DIA2, 2),
    "dia2, first stream": Model(
        dia2.FIRST_STREAM, DIA2, 2, {"allowed": dia2.allowed_ids(IDS, (IDS - 1, IDS - 2))}
    ),
    "mars5": Model(
        mars5.SAMPLER,
        [
            mars5.numbers(one)
            for one in (
                Mars5Options(),
                Mars5Options(temperature=1.1, top_k=20, top_p=0.9, typical_p=0.8),
                Mars5Options(temperature=1.0, top_k=0, top_p=1.0, freq_penalty=0, presence_penalty=0),
                Mars5Options(temperature=0.0),
            )
        ],
        inputs={
            "allowed": mars5.allowed_ids(IDS, 9),
            "counts": COUNTS,
            "penalty": 3 * numbers(2, TEXTS, 1),
            "end": END,
        },
    ),
    "metavoice": Model(
        metavoice.SAMPLER,
        [
            one.numbers
            for one in (
                FirstStageSampling(),
                FirstStageSampling(temperature=0.0),
                FirstStageSampling(top_p=None, top_k=9),
                FirstStageSampling(2.0, 1.5, rule="slow", top_p=0.6),
            )
        ],
        3,
    ),
    "qwen3, first codes": Model(
        qwen3.FIRST,
        QWEN3,
        inputs={
            "allowed": qwen3.allowed_ids(IDS, 5, END),
            "counts": COUNTS,
            "step": np.arange(TEXTS)[:, None] % 4,
            "end": END,
        },
    ),
    "qwen3, other codes": Model(qwen3.OTHERS, QWEN3),
}
RULES = {rule for model in MODELS.values() for rule in model.sampler.rules}


@pytest.mark.parametrize("sorts_all", [False, True], ids=["as a CPU", "as a GPU"])
@pytest.mark.parametrize("kind", ["plain", "ties"])
@pytest.mark.parametrize("name", MODELS)
def test_a_row_is_drawn_as_by_itself(
    name: str, kind: str, sorts_all: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the settings of the others; both sides draw the same ids. sorts_all: MLX's form for GPUs."""
    monkeypatch.setattr("mlx_port.sampling.on_gpu", lambda: sorts_all)
    model, random = MODELS[name], np.random.default_rng(5)
    logits = random.normal(0, 3, (model.guidance, TEXTS, IDS)).astype(np.float32)
    logits[:, ::3, END] += 9
    logits = logits.round() if kind == "ties" else logits
    rows = [model.settings[row % len(model.settings)] for row in range(TEXTS)]
    uniform = numbers(3, TEXTS, IDS if model.sampler.pick == "gumbel" else 1)
    needed = model.sampler.needed(model.sampler.table(rows))
    drawn = {}
    for side in (YARDSTICK, PORT):
        drawn[side] = draw(side, needed, [*logits], rows, uniform, **model.inputs)
        for row, settings in enumerate(rows):
            inputs = {
                key: value if key in model.once else value[row : row + 1]
                for key, value in model.inputs.items()
            }
            sampler = model.sampler.needed(model.sampler.table([settings]))
            parts = [*logits[:, row : row + 1]]
            [alone] = draw(side, sampler, parts, settings, uniform[row : row + 1], **inputs)
            assert alone == drawn[side][row], (side, row, settings)
    np.testing.assert_array_equal(drawn[YARDSTICK], drawn[PORT])
    assert len({*drawn[PORT].tolist()}) > 5


@pytest.mark.parametrize("name", MODELS)
def test_mixtures_of_settings_need_few_samplers(name: str) -> None:
    """They are the keys of what is compiled: 200 mixtures of 16 texts need no more than those of single texts
    and their unions.
    """
    model, random = MODELS[name], np.random.default_rng(6)
    mixtures = [
        [model.settings[place] for place in random.integers(0, len(model.settings), 16)] for _ in range(200)
    ]
    found = {model.sampler.needed(model.sampler.table(rows)) for rows in mixtures}
    assert len(found) <= 4, found


def test_every_rule_is_on_both_sides_and_in_the_kernel() -> None:
    kernel = (Path(torch_ref.__file__).parent / "cuda/sampling.py").read_text()
    written = set(re.findall(r'RULE == "(\w+)"', kernel))
    assert written == RULES
    for side in (TorchDraw, MlxDraw):
        public = {name for name, one in vars(side).items() if callable(one) and not name.startswith("_")}
        assert public == RULES, side


def test_a_rule_that_can_be_off_has_a_column() -> None:
    for model in MODELS.values():
        names = columns(model.sampler.settings)._fields
        assert all(rule in names for rule in model.sampler.rules if rule in OFF)
        table = model.sampler.table(model.settings)
        assert table.dtype == np.float32
        for place, name in enumerate(names):
            expected = [float(getattr(one, name)) for one in model.settings]
            np.testing.assert_allclose(table[:, place], expected, rtol=1e-7)
