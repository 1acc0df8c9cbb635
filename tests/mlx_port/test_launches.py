"""What a step launches on a GPU, and the bytes that it reads, counted from its graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn
from mlx.utils import tree_flatten

from mlx_port.dia.decoder import make_slots as dia_slots
from mlx_port.dia.dia import Dia
from mlx_port.dia2.decoder import make_slots as dia2_slots
from mlx_port.dia2.dia2 import Dia2
from mlx_port.kernels import add_norm
from mlx_port.mars5 import decoder as mars5_decoder
from mlx_port.mars5.codec_lm import CodecLM
from mlx_port.metavoice import decoder as metavoice_decoder
from mlx_port.metavoice.first_stage import FirstStage
from mlx_port.qwen3 import decoder as qwen3_decoder
from mlx_port.qwen3.qwen3 import Qwen3
from mlx_port.steps.dia import fused
from mlx_port.steps.qwen3 import fused as qwen3_fused
from mlx_port.steps.rows import product
from tests.mlx_port.launches import as_on_metal, bytes_read, launches
from tests.tiny.dia2_texts import GivenText
from tests.tiny.mars5_ar import VOCABULARY, deep_prompt, reference
from tests.tiny.networks import SAMPLING, ar_config, dia_config, qwen3_config
from tts_core import models
from tts_core.dia.grid import DiaInputs
from tts_core.dia2.config import GATED, Dia2StackConfig
from tts_core.dia2.inputs import Dia2Choice, Dia2Sampling
from tts_core.dia2.model import DIA2_2B
from tts_core.dia2.run import FREE
from tts_core.mars5.inputs import Mars5Inputs
from tts_core.mars5.options import Mars5Options
from tts_core.metavoice.inputs import FirstStageSampling, MetaVoiceInputs
from tts_core.metavoice.model import METAVOICE_FIRST_STAGE
from tts_core.models import network as spec_of
from tts_core.nn.noise import HostNoise
from tts_core.qwen3.config import CUSTOM_VOICE, Qwen3StackConfig
from tts_core.qwen3.layout import Qwen3Inputs, Qwen3Sampling, build
from tts_core.qwen3.model import qwen3 as published_qwen3

pytestmark = pytest.mark.rest

Step = Callable[[], tuple[mx.array, ...]]
LAUNCHES = {"dia": (14, 33), "dia2": (11, 551), "mars5": (11, 32), "metavoice": (10, 32), "qwen3": (11, 196)}
# of a step of one text in bfloat16: a layer's, and those of the rest
LAYER, REST = 22, 40  # most launches of a decoder layer, and of everything else in a step
QWEN3 = published_qwen3("1b7", CUSTOM_VOICE)
FRAME_LAYER = 11  # of a layer of Dia2 and Qwen3-TTS, in every dtype


def cast(network: nn.Module, kind: str, dtype: mx.Dtype) -> None:
    """Cast the tensors that a checkpoint of this dtype has in it."""
    network.apply_to_modules(lambda path, module: _cast(path, module, kind, dtype))


def _cast(path: str, module: nn.Module, kind: str, dtype: mx.Dtype) -> None:
    for name, value in module.items():
        if isinstance(value, mx.array) and not spec_of(kind).stays_float32(f"{path}.{name}"):
            module[name] = value.astype(dtype)


def dia(
    layers: int, dtype: mx.Dtype, *, cross_rope: bool = False, sizes: dict[str, int] | None = None
) -> tuple[Any, Step]:
    """One guided text, some rows in."""
    config = dia_config(cross_rope=cross_rope)
    heads: dict[str, Any] = {"num_hidden_layers": layers, "head_dim": 64, "cross_head_dim": 128}
    config = replace(config, decoder_config=replace(config.decoder_config, **heads | (sizes or {})))
    network = Dia(config)
    cast(network, "dia", dtype)
    with mock.patch.object(fused, "independent", product):  # a CPU's calls follow its BLAS
        batch = dia_slots(network, network.encode_empty(), texts=1, capacity=40)
    grid = np.full((40, 4), -1, np.int32)
    grid[0] = config.bos_token_id
    tokens = np.arange(1, 9).astype(np.int32)
    batch.join({0: DiaInputs(tokens, grid, 1, 0, 30, SAMPLING, HostNoise(1))})
    batch.read(batch.launch(2))
    mx.eval(batch.state)
    return batch, lambda: (*batch.launch(1).readings, batch.state.tokens, batch.state.since)


def metavoice(layers: int, dtype: mx.Dtype) -> tuple[Any, Step]:
    """One guided text by the fast rule with top-p."""
    config = replace(METAVOICE_FIRST_STAGE, num_hidden_layers=layers, hidden_size=128, num_attention_heads=2)
    config = replace(config, intermediate_size=96)
    network = FirstStage(config)
    cast(network, "metavoice", dtype)
    slots = metavoice_decoder.make_slots(network, texts=1, capacity=40, end_of_text=2561)
    vector = np.zeros(config.speaker_embedding_size, np.float32)
    ids = np.array([2100, 2101, 2102], np.int32)
    slots.join({0: MetaVoiceInputs(ids, vector, FirstStageSampling(), HostNoise(1))})
    slots.read(slots.launch(3))
    mx.eval(slots.state)
    return slots, lambda: (*slots.launch(1).readings, *slots.state)


def mars5(layers: int, dtype: mx.Dtype) -> tuple[Any, Step]:
    """One text with all penalties."""
    config = ar_config(num_hidden_layers=layers, hidden_size=128, num_attention_heads=2)
    network = CodecLM(config)
    cast(network, "mars5", dtype)
    codes = reference(5, config)
    prompt = deep_prompt(codes)
    options = Mars5Options(generate_max_len_override=len(prompt.tokens) + 40)
    ids = {"lowest": VOCABULARY.lowest, "end": VOCABULARY.end}
    slots = mars5_decoder.make_slots(network, texts=1, capacity=options.max_len, **ids)
    slots.join({0: Mars5Inputs(prompt, codes, options, HostNoise(1))})
    slots.read(slots.launch(3))
    mx.eval(slots.state)
    return slots, lambda: (*slots.launch(1).readings, *slots.state)


def dia2(layers: int, dtype: mx.Dtype, *, depth: int = 1) -> tuple[Any, Step]:
    """One guided text, some frames in, with as many streams as published. layers: of the transformer."""
    config = replace(
        DIA2_2B,
        transformer=Dia2StackConfig(layers, 64, 96, 4, 2, 64, GATED),
        depformer=Dia2StackConfig(depth, 64, 96, 2, 2, 64, GATED),
        low_rank_dim=64,
        text_vocab_size=40,
        audio_vocab_size=70,
        audio_pad_id=69,
        audio_bos_id=68,
    )
    network = Dia2(config)
    cast(network, "dia2", dtype)
    batch, ids = dia2_slots(network, texts=1, capacity=40), np.zeros(2 + config.n_streams, np.int32)
    choice, free = Dia2Choice(2.0, 50, 0.8, 50), np.append(ids[:2], np.full(config.n_streams, FREE))
    batch.join({0: GivenText([ids, ids, free], Dia2Sampling(choice, choice), HostNoise(1))})
    for _ in range(2):
        batch.read(batch.launch(1))

    def submitted() -> tuple[mx.array, ...]:
        """Submit a step, whose actions are not waited for."""
        found = list[mx.array]()
        with (
            mock.patch("mlx_port.batch.begin_read", lambda x: found.append(x) or x),
            mock.patch("mlx_port.batch.finish_read", lambda x: np.zeros(x.shape, np.int32)),
        ):
            batch.launch(1)
        return *found, *(each for held in batch.caches for each in (held.keys, held.values))

    return batch, submitted


def test_equal_kernels_of_a_chain_are_counted_each() -> None:
    """Kernels that differ only in their inputs, and mx.fast's operations beside element-wise ones."""

    @mx.compile
    def work(x: mx.array, weight: mx.array) -> mx.array:
        first, normed = add_norm.add_norm(x, x, None, weight, 1e-5, x.dtype)
        second, again = add_norm.add_norm(first, normed, None, weight, 1e-5, x.dtype)
        return mx.fast.rms_norm(second, weight, 1e-5) * weight + again

    with as_on_metal():
        x, weight = mx.array([[1.0] * 8]), mx.array([1.0] * 8)
        found = launches(work(x, weight))
    assert found.total() == 4, found  # two kernels, a norm, one chain


MODELS: dict[str, Callable[[int, mx.Dtype], tuple[Any, Step]]] = {
    "dia 0626": dia,
    "dia v0.1": lambda layers, dtype: dia(layers, dtype, cross_rope=True),
    "metavoice": metavoice,
    "mars5": mars5,
}


def launched(step: Step) -> Counter[str]:
    with as_on_metal(), mock.patch.object(mx, "async_eval"):
        return launches(*step())


def counted(model: str, layers: int, dtype: mx.Dtype) -> Counter[str]:
    return launched(MODELS[model](layers, dtype)[1])


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16, mx.float16], ids=str)
@pytest.mark.parametrize("model", MODELS)
def test_launches_of_a_step(model: str, dtype: mx.Dtype) -> None:
    two, three = counted(model, 2, dtype), counted(model, 3, dtype)
    layer = three - two
    rest = two - layer - layer
    assert 9 <= layer.total() <= LAYER, layer
    assert 20 <= rest.total() <= REST, rest
    if dtype == mx.bfloat16 and model != "dia v0.1":
        assert (layer.total(), rest.total()) == LAUNCHES[model.partition(" ")[0]]


def qwen3(layers: int, dtype: mx.Dtype, *, depth: int = 1) -> tuple[Any, Step]:
    """One text, some frames in, with as many codes as published. layers: of the talker."""
    config = qwen3_config()
    config = replace(
        config,
        talker=Qwen3StackConfig(64, 96, layers, 4, 2, 64, 1e6, 1e-6),
        predictor=Qwen3StackConfig(64, 96, depth, 4, 2, 64, 1e4, 1e-6),
        n_codebooks=16,
    )
    network = Qwen3(config)
    cast(network, "qwen3", dtype)
    with mock.patch.object(qwen3_fused, "independent", product):  # a CPU's calls follow its BLAS
        slots = qwen3_decoder.make_slots(network, texts=1, capacity=60)
    layout = build(config, [*range(9)], language=None, streamed=True)
    slots.join({0: Qwen3Inputs(layout, Qwen3Sampling(), HostNoise(1))})
    for _ in range(2):
        slots.read(slots.launch(1))
    return slots, lambda: (
        *slots.launch(1).readings,
        *slots.state,
        *(each for held in slots.caches for each in (held.keys, held.values)),
    )


FRAMES: dict[str, tuple[Callable[..., tuple[Any, Step]], int, dict[str, Any], tuple[Any, Any]]] = {
    "dia2": (
        dia2,
        DIA2_2B.n_streams - 1,
        {"dia2": DIA2_2B},
        (DIA2_2B.transformer, DIA2_2B.depformer),
    ),
    "qwen3": (qwen3, 16, {"qwen3": QWEN3}, (QWEN3.talker, QWEN3.predictor)),
}  # model → its step, how often the second stack runs in it, published sizes, their two stacks


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16, mx.float16], ids=str)
@pytest.mark.parametrize("model", FRAMES)
def test_launches_of_a_frame(model: str, dtype: mx.Dtype) -> None:
    """A layer of the first stack, of the second at each stage of it, and all else, draws included."""
    make, stages, published, stacks = FRAMES[model]

    def counted(layers: int, depth: int) -> Counter[str]:
        return launched(make(layers, dtype, depth=depth)[1])

    base = counted(2, 1)
    layer, depth = counted(3, 1) - base, counted(2, 2) - base
    rest = base - layer - layer - depth
    assert (layer.total(), depth.total()) == (FRAME_LAYER, FRAME_LAYER * stages), (layer, depth)
    assert rest.total() <= REST + 19 * stages, rest
    if dtype == mx.bfloat16:
        totals = zip(stacks, (layer, depth), strict=True)
        whole = sum(stack.num_hidden_layers * one.total() for stack, one in totals) + rest.total()
        a_layer, others = LAUNCHES[model]
        assert whole == a_layer * models.MODELS[model].speed.layers(published) + others, (layer, depth, rest)


def test_a_step_reads_its_weights_once() -> None:
    """All launches together read at most 1.05 times the weights and the keys and values."""
    sizes = {"hidden_size": 1024, "intermediate_size": 4096, "vocab_size": 1028, "num_attention_heads": 8}
    batch, step = dia(2, mx.bfloat16, sizes=sizes)
    network = batch.decoder.dia
    once = ("cross_attention.k_proj", "cross_attention.v_proj")  # of the text, not of a step
    layers: Any = tree_flatten([layer.parameters() for layer in network.model.decoder.layers])
    weights = sum(value.nbytes for name, value in layers if not any(part in name for part in once))
    weights += network.logits_dense.weight.nbytes
    with as_on_metal(), mock.patch.object(mx, "async_eval"):
        found = bytes_read(step)
    seen = batch.rows.texts[0].steps + 1
    cache = sum(one.both[..., :seen, :].nbytes for one in batch.caches)
    cache += sum(one.nbytes for one in (*batch.state.keys, *batch.state.values))
    assert weights + cache < found <= 1.05 * (weights + cache)
