"""Dia2's step in MLX: the numbers of the layers, submitted before the host needs them."""

from __future__ import annotations

import shutil
from functools import cache
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn
from mlx.utils import tree_flatten

from mlx_port.dia2.decoder import make_slots
from mlx_port.dia2.dia2 import Dia2
from mlx_port.layers.cache import KeyValueCache
from mlx_port.layers.row_cache import RowCache, RowPositions
from mlx_port.steps import rows
from mlx_port.steps.dia2.fused import FusedDia2, fused
from tests.golden.dia2_bench import build
from tests.tiny.dia2_texts import GivenText
from tests.tiny.networks import dia2_config, other_config, tiny
from tts_core.dia2.config import Dia2Config, is_norm
from tts_core.dia2.inputs import Dia2Choice, Dia2Sampling
from tts_core.dia2.run import FREE
from tts_core.nn.noise import HostNoise

pytestmark = pytest.mark.rest

USUAL = Dia2Sampling(Dia2Choice(2.0, 5, 0.6, 2), Dia2Choice(2.0, 5, 0.8, 5))


@cache
def network(config: Dia2Config, dtype: mx.Dtype, compute: mx.Dtype | None = None) -> Dia2:
    made = build("mlx", tiny(config, seed=2)).network
    parameters: Any = tree_flatten(made.parameters())
    made.load_weights([(name, value if is_norm(name) else value.astype(dtype)) for name, value in parameters])
    made.transformer.compute = compute
    return made


def numbers(x: mx.array) -> np.ndarray:
    return np.array(x.astype(mx.float32))


@pytest.mark.parametrize("config", [dia2_config(), other_config()], ids=["gaps", "plain"])
@pytest.mark.parametrize(
    ("dtype", "compute"),
    [(mx.float32, None), (mx.bfloat16, None), (mx.float16, None), (mx.float32, mx.bfloat16)],
    ids=str,
)
def test_a_step_has_the_numbers_of_the_layers(
    config: Dia2Config, dtype: mx.Dtype, compute: mx.Dtype | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the bit on a CPU, also for rounded sums of embeddings and norms, at unequal positions.

    With the layers' own products: those of whole blocks, in float32, add in the order of another BLAS kernel
    (test_steps_in_whole_blocks_are_as_near_to_float64).
    """
    monkeypatch.setattr(rows, "in_blocks", rows.product)
    built = network(config, dtype, compute)
    steps, random = FusedDia2(built), np.random.default_rng(1)
    text = random.integers(0, config.text_vocab_size, (3, 6, 2))
    text[1, :, 1] = config.text_pad_id
    ids = np.concatenate([text, random.integers(0, config.audio_vocab_size, (3, 6, config.n_streams))], -1)
    tokens, starts = mx.array(ids.astype(np.int32)), np.array([0, 4, 4], np.int32)
    stack = config.transformer
    room = 3, stack.num_key_value_heads, 12, stack.head_dim
    at = RowPositions(12)
    held = [RowCache(mx.zeros(room, steps.kind), mx.zeros(room, steps.kind), at) for _ in steps.trunk.layers]
    caches = [built.transformer.new_cache() for _ in range(3)]
    for row in (1, 2):  # four steps before
        before = mx.array(random.integers(0, 30, (1, 4, 2 + config.n_streams)).astype(np.int32))
        built.transformer(before, 0, caches[row])
        for layer, known in zip(held, caches[row], strict=True):
            assert known.buffers is not None
            layer.fill(row, *(each[0, :, :4] for each in known.buffers))
    hidden = mx.zeros(0)
    for step in range(6):
        hidden = steps.hidden(tokens[:, step], starts + step, starts + step, held, texts=3)
        for row in range(3):
            known = built.transformer(
                tokens[row : row + 1, step : step + 1], int(starts[row]) + step, caches[row]
            )
            np.testing.assert_array_equal(numbers(hidden)[row], numbers(known)[0, 0])
    np.testing.assert_array_equal(numbers(steps.actions(hidden)), numbers(built.transformer.actions(hidden)))
    np.testing.assert_array_equal(numbers(steps.codes(hidden)), numbers(built.transformer.codes(hidden)))
    projected, stages = steps.stages(hidden), steps.new_stages(3)
    depth: list[KeyValueCache] = built.depformer.new_cache()
    main, second = tokens[:, 0, 0], tokens[:, 0, 1]
    for stage in range(config.n_streams - 1):
        previous = mx.array(random.integers(0, config.codebook_size, 3).astype(np.int32))
        read = built.depformer.audio_embeds[stage](previous).astype(steps.kind)
        if stage == 0 and built.depformer.text_embed is not None:
            read = read + built.depformer.text_embed(main, second).astype(steps.kind)
        own = steps.stage(stage, projected, read, stages)
        known = built.depformer(stage, hidden, previous, (main, second), depth)
        np.testing.assert_array_equal(numbers(own), numbers(known), f"stage {stage}")


def test_weights_are_stored_once() -> None:
    """Joined products and tables are the network's own tensors; a replaced one builds the form again."""
    built = build("mlx", tiny("dia2", seed=5)).network
    first = fused(built)
    assert fused(built) is first
    table = first.table
    assert isinstance(table, nn.Embedding)
    name = "transformer.audio_embeds.1.weight"
    np.testing.assert_array_equal(
        numbers(built.transformer.audio_embeds[1].weight),
        numbers(table.weight)[dia2_config().audio_vocab_size :][: dia2_config().audio_vocab_size],
    )
    built.load_weights([(name, mx.zeros_like(built.transformer.audio_embeds[1].weight))], strict=False)
    assert fused(built) is not first


def running(config: Dia2Config, **changes: Any) -> tuple[Any, GivenText]:
    text = GivenText([np.ones(2 + config.n_streams, np.int32)], USUAL, HostNoise(1), **changes)
    batch = make_slots(network(config, mx.float32), texts=2, capacity=50)
    batch.join({0: text})
    return batch, text


@pytest.mark.parametrize("config", [dia2_config(), other_config()], ids=["reads text", "without text"])
def test_codes_are_submitted_before_the_action_is_read(
    config: Dia2Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless the depformer reads the new text: then they follow the state machine's answer."""
    (batch, text), done = running(config), list[str]()
    submit, answer = mx.async_eval, text.answer
    monkeypatch.setattr(mx, "async_eval", lambda *arrays: done.append("submit") or submit(*arrays))
    monkeypatch.setattr(text, "answer", lambda action: done.append("answer") or answer(action))
    codes = batch.launch(1)
    assert done == (
        ["submit", "answer", "submit"] if config.depformer_has_text else ["submit", "submit", "answer"]
    )
    assert batch.read(codes).shape == (1, 2, config.n_streams)


def test_codes_stay_on_the_device() -> None:
    """FREE ids are the codes that the text drew last: the same step as with the ids themselves."""
    config, first = other_config(), np.ones(2 + other_config().n_streams, np.int32)
    (one, text), (other, _) = running(config), running(config)
    drawn, known = one.launch(1), other.read(other.launch(1))[0, 0]
    text.steps = [first, np.array([5, 3, *[FREE] * len(known)], np.int32)]
    other.rows.texts[0].inputs.steps = [first, np.array([5, 3, *known], np.int32)]
    np.testing.assert_array_equal(one.read(one.launch(1)), other.read(other.launch(1)))
    np.testing.assert_array_equal(one.read(drawn)[0, 0], known)
    for own, theirs in zip(one.caches, other.caches, strict=True):
        np.testing.assert_array_equal(numbers(own.keys), numbers(theirs.keys))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="MLX compiles chains for a CPU with g++")
@pytest.mark.parametrize("config", [dia2_config(), other_config()], ids=["reads text", "without text"])
def test_compiled_chains_have_the_same_numbers(config: Dia2Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU: chains are built once, and again for another mixture of settings."""
    bare = Dia2Choice(1.0, 0, 0.7, 5)

    def drawn() -> list[np.ndarray]:
        batch, found = make_slots(build("mlx", tiny(config, seed=8)).network, texts=2, capacity=50), []
        ids, free = (
            np.ones(2 + config.n_streams, np.int32),
            np.array([5, 3, *[FREE] * config.n_streams], np.int32),
        )
        texts = [
            GivenText([ids, free], each, HostNoise(slot))
            for slot, each in enumerate((USUAL, Dia2Sampling(bare, bare)))
        ]
        for slot, text in enumerate(texts):
            batch.join({slot: text})
            found += [batch.read(batch.launch(1)) for _ in range(3)]
        return [*found, *(np.array(text.actions) for text in texts)]

    plain = drawn()
    monkeypatch.setattr("mlx_port.steps.chain.on_gpu", lambda: True)
    for own, known in zip(drawn(), plain, strict=True):
        np.testing.assert_array_equal(own, known)
