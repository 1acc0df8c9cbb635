"""Small random networks of the models whose steps texts share, and texts that speak in their slots.

Widths are those of small models, so that products take the paths of real ones. Used by exact_batches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.lib.random_networks import PACKAGES, network
from tts_core.dia2.config import GATED
from tts_core.dia2.config import Dia2StackConfig as Dia2Stack
from tts_core.dia2.inputs import Dia2Choice, Dia2Sampling
from tts_core.dia2.model import DIA2_2B
from tts_core.dia2.run import FREE
from tts_core.mars5.inputs import Mars5Inputs
from tts_core.mars5.model import MARS5_AR
from tts_core.mars5.options import Mars5Options
from tts_core.mars5.tokens import CodecPrompt
from tts_core.metavoice.inputs import FirstStageSampling, MetaVoiceInputs
from tts_core.metavoice.model import METAVOICE_FIRST_STAGE
from tts_core.nn.noise import HostNoise
from tts_core.qwen3 import layout
from tts_core.qwen3.config import CUSTOM_VOICE
from tts_core.qwen3.config import Qwen3StackConfig as Qwen3Stack
from tts_core.qwen3.layout import Qwen3Inputs, Qwen3Sampling
from tts_core.qwen3.model import qwen3
from tts_core.speaking.rows import BatchText, TextInputs

LONGEST = 40  # ids of a text

WIDE: dict[str, Any] = {"hidden_size": 512, "intermediate_size": 1408, "num_attention_heads": 8}
MARS5 = replace(MARS5_AR, vocab_size=1600, num_hidden_layers=4, speaker_layers=1, speaker_heads=8, **WIDE)
METAVOICE = replace(METAVOICE_FIRST_STAGE, num_hidden_layers=4, **WIDE)
DIA2 = replace(
    DIA2_2B,
    transformer=Dia2Stack(4, 512, 1408, 8, 4, 64, GATED),
    depformer=Dia2Stack(1, 256, 512, 4, 4, 64, GATED),
    low_rank_dim=128,
    text_vocab_size=900,
    audio_vocab_size=600,
    audio_pad_id=599,
    audio_bos_id=598,
)
QWEN3 = replace(
    qwen3("0b6", CUSTOM_VOICE),
    talker=Qwen3Stack(512, 1408, 4, 8, 4, 64, 1e6, 1e-6),
    predictor=Qwen3Stack(256, 768, 2, 4, 2, 64, 1e6, 1e-6),
    text_hidden_size=256,
)


@dataclass(frozen=True)
class Kind:
    """A model. slots: opens slots of a network for texts.  text: a text and its seed, by number."""

    config: Any
    slots: Callable[[Any, Any, int, int], Any]  # class, network, texts, steps
    text: Callable[[int], Any]


def mars5_text(number: int) -> Mars5Inputs:
    random = np.random.default_rng(number)
    said = random.integers(0, 500, random.integers(5, LONGEST)).astype(np.int32)
    tokens = np.concatenate([said, random.integers(501, 1500, 8).astype(np.int32)])
    codes = random.integers(0, 1024, (MARS5.n_codebooks, int(random.integers(10, 30)))).astype(np.int32)
    options = Mars5Options(generate_max_len_override=LONGEST + 200)
    return Mars5Inputs(CodecPrompt(tokens, len(said), 100, len(said) + 1), codes, options, HostNoise(number))


def metavoice_text(number: int) -> MetaVoiceInputs:
    random = np.random.default_rng(number)
    ids = random.integers(2049, 2561, random.integers(5, LONGEST)).astype(np.int32)
    vector = random.normal(0, 0.06, METAVOICE.speaker_embedding_size).astype(np.float32)
    return MetaVoiceInputs(ids, vector, FirstStageSampling(), HostNoise(number))


def qwen3_text(number: int) -> Qwen3Inputs:
    random = np.random.default_rng(number)
    ids = random.integers(0, 9999, random.integers(5, LONGEST)).tolist()
    laid = layout.build(QWEN3, ids, language=None, streamed=True)
    return Qwen3Inputs(laid, Qwen3Sampling(), HostNoise(number))


@dataclass(eq=False)
class Dia2Words(TextInputs):
    """A text of Dia2 without a run: random ids in its text streams. before: of a prefix, (P, 2 + Q)."""

    number: int
    before: np.ndarray
    sampling: Dia2Sampling
    noise: HostNoise
    actions: list[int] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return 2

    @property
    def positions(self) -> int:
        return len(self.before)

    def given(self, text: BatchText) -> np.ndarray:
        said = np.random.default_rng((self.number, text.steps)).integers(0, 900, 2)
        return np.array([len(self.before) + text.steps, *said, *[FREE] * DIA2.n_streams], np.int32)

    def answer(self, action: int) -> tuple[int, int]:
        self.actions.append(action)
        return 5, 3


def dia2_text(number: int) -> Dia2Words:
    random, choice = np.random.default_rng(number), Dia2Choice(2.0, 50, 0.8, 50)
    before = random.integers(0, 590, (random.integers(1, LONGEST), 2 + DIA2.n_streams)).astype(np.int32)
    return Dia2Words(number, before, Dia2Sampling(choice, choice), HostNoise(number))


KINDS = {
    "mars5": Kind(
        MARS5,
        lambda form, net, texts, steps: form(
            net, texts=texts, capacity=LONGEST + 60 + steps, lowest=500, end=MARS5.vocab_size - 1
        ),
        mars5_text,
    ),
    "metavoice": Kind(
        METAVOICE,
        lambda form, net, texts, steps: form(
            net, texts=texts, rows=2 * texts, capacity=LONGEST + steps + 1, end_of_text=2561
        ),
        metavoice_text,
    ),
    "dia2": Kind(
        DIA2, lambda form, net, texts, steps: form(net, texts=texts, capacity=LONGEST + steps), dia2_text
    ),
    "qwen3": Kind(
        QWEN3,
        lambda form, net, texts, steps: form(net, texts=texts, capacity=LONGEST + 60 + steps),
        qwen3_text,
    ),
}


def built(model: str, side: str) -> Any:
    """Build the network, with random weights that keep activations at the size of trained ones."""
    return network(side, model, KINDS[model].config, "float32", law=_law)


def _law(name: str, shape: tuple[int, ...]) -> tuple[float, float]:
    if len(shape) == 1:
        return float(not name.endswith("bias")), 0.1
    return 0, 0.5 if "emb" in name or ".wte" in name else shape[-1] ** -0.5


def opened(model: str, side: str, network: Any, texts: int, steps: int) -> Any:
    """Open slots of a network."""
    form = import_module(f"{PACKAGES[side]}.{model}.decoder").make_slots
    return KINDS[model].slots(form, network, texts, steps)


def compared(
    model: str,
    side: str,
    network: Any,
    numbers: Sequence[int],
    steps: int,
    sizes: Sequence[int] = (2, 4, 8, 16),
) -> dict[str, list[int]]:
    """Let texts speak alone and in batches. → by size of batch: how many have other codes, and other keys."""
    alone = [speak(model, side, network, [number], steps)[0] for number in numbers]
    found = dict[str, list[int]]()
    for size in sizes:
        parts = [numbers[start : start + size] for start in range(0, len(numbers), size)]
        shared = [item for part in parts for item in speak(model, side, network, part, steps)]
        differ = [
            (
                not np.array_equal(codes, own),
                not np.array_equal(keys[:, :, : own_keys.shape[2]], own_keys[:, :, : keys.shape[2]]),
            )
            for (codes, keys), (own, own_keys) in zip(shared, alone, strict=True)
        ]
        found[f"batches of {size}"] = [sum(item) for item in zip(*differ, strict=True)]
    return found


def speak(
    model: str, side: str, network: Any, numbers: Sequence[int], steps: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Let texts speak together for some steps. → codes of each, a row a step, and its keys, as `kept`."""
    slots = opened(model, side, network, len(numbers), steps)
    for slot, number in enumerate(numbers):
        slots.join({slot: KINDS[model].text(number)})
    drawn = [step(model, slots) for _ in range(steps)]
    codes = [np.stack([draw[slot] for draw in drawn]) for slot in range(len(numbers))]
    return list(zip(codes, states(model, slots, len(numbers)), strict=True))


def step(model: str, slots: Any) -> np.ndarray:
    """Run one step of all texts, and wait for it. → (texts, ...) codes, with the actions last."""
    codes = np.asarray(slots.read(slots.launch(1)))[0]
    if model != "dia2":
        return codes
    actions = [slots.rows.texts[slot].inputs.actions[-1] for slot in range(len(codes))]
    return np.column_stack((codes, actions))


def states(model: str, slots: Any, texts: int) -> list[np.ndarray]:
    """Return each text's keys of the last layer, (rows, K, S, E), which show every rounding of a step."""
    keys = _host(slots.caches[-1].keys)
    apart = len(keys) // slots.copies
    return [keys[slot::apart][: slots.copies] for slot in range(texts)]


def _host(x: Any) -> np.ndarray:
    return np.asarray(x)


@contextmanager
def plain(model: str, side: str) -> Iterator[None]:
    """Let slots that are built and run inside take the libraries' products and masked attention."""
    with ExitStack() as stack:
        if side == "torch":
            batch = import_module("torch_ref.batch")
            stack.enter_context(mock.patch.object(batch, "independent_rows", return_value=nullcontext()))
        else:
            from mlx_port.steps import row_keys, rows

            stack.enter_context(mock.patch.object(rows, "_has_blocks", return_value=False))
            stack.enter_context(mock.patch.object(row_keys, "on_gpu", return_value=True))
        yield


def alternating(model: str, side: str, texts: int, steps: int) -> tuple[list[float], list[float]]:
    """Time steps of as many texts by turns, after two that are not timed.

    → the processor's seconds of exact and of plain ones.
    """
    networks, slots = [built(model, side) for _ in range(2)], list[Any]()
    ways: list[Callable[[], Any]] = [nullcontext, lambda: plain(model, side)]
    numbers, took = range(texts), (list[float](), list[float]())
    for own_network, way in zip(networks, ways, strict=True):
        with way():
            slots.append(opened(model, side, own_network, texts, steps + 2))
            for slot, number in enumerate(numbers):
                slots[-1].join({slot: KINDS[model].text(number)})
    for _ in range(steps + 2):
        for which, way in enumerate(ways):
            with way():
                started = time.process_time()
                step(model, slots[which])
                took[which].append(time.process_time() - started)
    return took[0][2:], took[1][2:]
