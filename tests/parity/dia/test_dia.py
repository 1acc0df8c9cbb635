"""Dia's blocks and network, MLX against PyTorch: block by block, in the derived bound."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.sides import ORACLE, PORT, YARDSTICK, Side, assert_parity
from tests.tiny.dia import dia_config, dia_weights
from tests.tiny.inputs import normal

CONFIG = dia_config()
GENERATIONS = pytest.mark.parametrize("cross_rope", [False, True], ids=["0626", "v0.1"])
LATE = 2050  # rows, eight chunks of the cache: there a float32 angle has an error of 1e-4


@cache
def network(side: Side, *, cross_rope: bool = False) -> Any:
    return side.network("dia", dia_weights(dia_config(cross_rope=cross_rope), seed=1))


def grid_rows(batch: int, rows: int, seed: int = 5) -> np.ndarray:
    """(B, T, C) ids, special ones included."""
    decoder = CONFIG.decoder_config
    shape = (batch, rows, decoder.num_channels)
    return np.random.default_rng(seed).integers(0, CONFIG.bos_token_id + 1, shape).astype(np.int32)


def text(length: int) -> np.ndarray:
    return np.random.default_rng(length).integers(1, 256, length).astype(np.int32)


def late_cache(side: Side, net: Any, batch: int) -> list[Any]:
    """Caches that already hold LATE rows of random keys and values."""
    rows, decoder = net.new_cache(), CONFIG.decoder_config
    for place, layer in enumerate(rows):
        shape = (batch, decoder.num_key_value_heads, LATE, decoder.head_dim)
        layer.extend(side.array(normal(20 + place, *shape)), side.array(normal(30 + place, *shape)))
    return rows


def test_mlp() -> None:
    x = normal(1, 2, 5, 44)
    assert_parity("MLP", lambda side: side.numpy(network(side).model.decoder.layers[0].mlp(side.array(x))))


@pytest.mark.parametrize("length", [1, 2, 37, 90])
def test_self_attention_of_text(length: int) -> None:
    x = normal(2, 2, length, 40)

    def run(side: Side) -> np.ndarray:
        encoder = network(side).model.encoder
        return side.numpy(encoder.layers[0].self_attention(side.array(x), encoder.rotary(0, length)))

    assert_parity(f"encoder self-attention over {length}", run)


def attend(side: Side, x: np.ndarray, steps: Sequence[int]) -> np.ndarray:
    """Rows that come in steps through the first layer's self-attention."""
    decoder, rows = network(side).model.decoder, network(side).new_cache()[0]
    outs, start = [], 0
    for step in steps:
        part, rotation = side.array(x[:, start : start + step]), decoder.rotary(start, step)
        outs.append(side.numpy(decoder.layers[0].self_attention(part, rotation, rows)))
        start += step
    return np.concatenate(outs, axis=1)


@pytest.mark.parametrize("steps", [(1, 1, 1), (5, 1, 3, 1), (255, 2, 1, 4), (300, 1)], ids=str)
def test_causal_self_attention(steps: Sequence[int]) -> None:
    x = normal(3, 2, sum(steps), 44)
    assert_parity(f"decoder self-attention in steps of {steps}", lambda side: attend(side, x, steps))


def test_steps_equal_one_pass() -> None:
    """Causality and the cache: rows one by one equal those of one pass, in float64."""
    x = normal(4, 2, 12, 44)
    whole = attend(ORACLE, x, [12])
    for steps in ([1] * 12, [3, 4, 5], [11, 1]):
        np.testing.assert_allclose(attend(ORACLE, x, steps), whole, rtol=0, atol=1e-13)


@pytest.mark.parametrize("masked", [False, True], ids=["equal lengths", "unequal lengths"])
@pytest.mark.parametrize("position", [None, 0, LATE], ids=str)
def test_cross_attention(position: int | None, masked: bool) -> None:
    encoded, x = normal(5, 3, 17, 40), normal(6, 3, 4, 44)
    lengths = np.array([17, 1, 9])
    mask = (np.arange(17) < lengths[:, None])[:, None, None] if masked else None

    def run(side: Side) -> np.ndarray:
        decoder = network(side).model.decoder
        attention = decoder.layers[1].cross_attention
        rotations = [None, None] if position is None else [(0, 17), (position, 4)]
        text_turn, row_turn = (None if at is None else decoder.cross_rotary(*at) for at in rotations)
        keys, values = attention.project(side.array(encoded), text_turn)
        seen = None if mask is None else side.array(mask)
        return side.numpy(attention(side.array(x), keys, values, seen, row_turn))

    assert_parity(f"cross-attention at {position}", run)


@pytest.mark.parametrize("scale", [1e-3, 1.0])
def test_encoder_layer(scale: float) -> None:
    x = normal(7, 2, 23, 40, scale=scale)

    def run(side: Side) -> np.ndarray:
        encoder = network(side).model.encoder
        return side.numpy(encoder.layers[1](side.array(x), encoder.rotary(0, 23)))

    assert_parity(f"encoder layer at scale {scale}", run)


@pytest.mark.parametrize("length", [1, 2, 37, 90])
def test_encoder(length: int) -> None:
    ids = np.stack([text(length), text(length)[::-1]])
    assert_parity(
        f"encoder of {length}", lambda side: side.numpy(network(side).model.encoder(side.array(ids)))
    )


def test_embeddings() -> None:
    """Every id in every channel, so that a swapped row shows."""
    decoder = CONFIG.decoder_config
    ids = np.arange(decoder.vocab_size, dtype=np.int32)[None, :, None].repeat(decoder.num_channels, axis=2)
    tokens = np.concatenate([ids, (ids + np.arange(decoder.num_channels)) % decoder.vocab_size])
    assert_parity(
        "embeddings",
        lambda side: side.numpy(network(side).model.decoder.embeddings(side.array(tokens.astype(np.int32)))),
    )


@GENERATIONS
@pytest.mark.parametrize("rows", [1, 3])
def test_decoder_layer_late(cross_rope: bool, rows: int) -> None:
    x = normal(8, 4, rows, 44)  # two texts, each with an unconditional row

    def run(side: Side) -> np.ndarray:
        net = network(side, cross_rope=cross_rope)
        decoder = net.model.decoder
        source = net.read([side.array(text(9)), side.array(text(4))], net.encode_nothing())
        turn = decoder.cross_rotary(LATE, rows) if cross_rope else None
        cache = late_cache(side, net, 4)[1]
        out = decoder.layers[1](side.array(x), decoder.rotary(LATE, rows), turn, cache, source, 1)
        return side.numpy(out)

    assert_parity("decoder layer", run)


@GENERATIONS
def test_source(cross_rope: bool) -> None:
    """Keys, values and the unconditional constants of every layer."""

    def run(side: Side) -> np.ndarray:
        net = network(side, cross_rope=cross_rope)
        source = net.read([side.array(text(length)) for length in (90, 1, 13)], net.encode_nothing())
        every = [*source.keys, *source.values, *source.unconditional]
        return np.concatenate([side.numpy(each).ravel() for each in every])

    assert_parity("source", run)


@GENERATIONS
@pytest.mark.parametrize("lengths", [(13, 13), (90, 1, 37)], ids=["equal", "unequal"])
def test_network(cross_rope: bool, lengths: Sequence[int]) -> None:
    """Logits of a prompt read in one pass, then of single rows across the cache's chunk boundary."""
    batch, prompt, steps = len(lengths), 254, 4
    tokens = grid_rows(2 * batch, prompt + steps)

    def run(side: Side) -> np.ndarray:
        net = network(side, cross_rope=cross_rope)
        source = net.read([side.array(text(length)) for length in lengths], net.encode_nothing())
        cache = net.new_cache()
        outs = [side.numpy(net(side.array(tokens[:, :prompt]), cache, source))]
        for row in range(prompt, prompt + steps):
            outs.append(
                side.numpy(net.next_logits(side.array(tokens[:, row : row + 1]), cache, source))[:, None]
            )
        return np.concatenate(outs, axis=1)

    assert_parity(f"network over texts of {lengths}", run)


@GENERATIONS
def test_network_late(cross_rope: bool) -> None:
    tokens = grid_rows(2, 4)

    def run(side: Side) -> np.ndarray:
        net = network(side, cross_rope=cross_rope)
        source, cache = net.read([side.array(text(21))], net.encode_nothing()), late_cache(side, net, 2)
        first = side.numpy(net(side.array(tokens[:, :3]), cache, source))
        return np.concatenate(
            [first, side.numpy(net.next_logits(side.array(tokens[:, 3:]), cache, source))[:, None]], axis=1
        )

    assert_parity(f"network at position {LATE}", run)


def test_next_logits_are_the_last_of_all() -> None:
    tokens = grid_rows(2, 7)

    def run(side: Side) -> np.ndarray:
        net = network(side)
        source = net.read([side.array(text(5))], net.encode_nothing())
        every = side.numpy(net(side.array(tokens), net.new_cache(), source))[:, -1]
        last = side.numpy(net.next_logits(side.array(tokens), net.new_cache(), source))
        if side is ORACLE:
            np.testing.assert_allclose(last, every, rtol=0, atol=1e-12)
        return np.stack([last, every])

    assert_parity("next_logits", run)


@GENERATIONS
def test_the_switch_matters(cross_rope: bool) -> None:
    """The same weights under the other release's rule give other logits, so the tests above can fail."""
    for side in (PORT, YARDSTICK):
        outs = []
        for switch in (cross_rope, not cross_rope):
            net = network(side, cross_rope=switch)
            source = net.read([side.array(text(21))], None)
            outs.append(side.numpy(net.next_logits(side.array(grid_rows(1, 3)), net.new_cache(), source)))
        assert np.abs(outs[0] - outs[1]).max() > 0.05
