"""Dia2's networks, MLX against PyTorch: every layer, one step at a time with caches, and quantized copies."""

from collections.abc import Callable, Sequence
from functools import cache

import mlx.core as mx
import numpy as np
import pytest

from mlx_port.layers.row_cache import RowCache, RowPositions
from mlx_port.steps.dia2.fused import FusedDia2
from tests.draws import only, score
from tests.golden.bench import Bench
from tests.golden.dia2_bench import Dia2Side, build
from tests.sides import SIDES, Side
from tests.tiny.networks import dia2_config, other_config, tiny
from tests.tolerance import assert_within
from tts_core.dia2.config import Dia2Config
from tts_core.dia2.inputs import SAMPLER, Dia2Choice

TINY, OTHER = dia2_config(), other_config()
CONFIGS = pytest.mark.parametrize("config", [TINY, OTHER], ids=["gaps", "plain"])
STEPS = 9


@cache
def bench(config: Dia2Config) -> Bench[Dia2Side]:
    weights = tiny(config, seed=4)
    sides = {kind: build(kind, weights) for kind in ("mlx", "torch", "float64")}
    return Bench.load("mlx", sides.__getitem__)


def ids(config: Dia2Config, steps: int = STEPS) -> np.ndarray:
    """(2, streams, T), both rows different; the second text stream is sometimes silent."""
    random = np.random.default_rng(steps)
    text = random.integers(0, config.text_vocab_size, (2, 2, steps))
    text[:, 1, ::3] = config.text_pad_id
    codes = random.integers(0, config.audio_vocab_size, (2, config.n_streams, steps))
    return np.concatenate([text, codes], axis=1).astype(np.int32)


def compare(config: Dia2Config, run: Callable[[Dia2Side], dict[str, np.ndarray]]) -> None:
    trio = bench(config)
    own, known, truth = (run(side) for side in (trio.side, trio.torch32, trio.torch64))
    assert own.keys() == truth.keys()
    for name in truth:
        assert_within(own[name], known[name], truth[name], name)


@pytest.mark.parametrize("cfg_scale", [0.0, 0.25, 0.5, 3.0])
@pytest.mark.parametrize("kind", SIDES)
def test_guidance_has_one_value_in_either_form(kind: str, cfg_scale: float) -> None:
    """Of whole numbers, with which float32 is exact here."""
    side = Side(kind)
    cond, uncond = np.random.default_rng(2).integers(-50, 50, (2, 3, 40)).astype(np.float32)
    sampler = only(SAMPLER, "nearer_guidance", "guided_logits")
    found = score(side, sampler, (cond, uncond), Dia2Choice(cfg_scale, 5, 1.0, 0).numbers)
    np.testing.assert_array_equal(found, uncond + cfg_scale * (cond - uncond))


def stepped(side: Dia2Side, members: Sequence[int]) -> dict[str, np.ndarray]:
    """Read rows of `ids` one step at a time, by the networks of steps in MLX, and draw a frame's stages."""
    config = side.network.config
    read = ids(config).swapaxes(1, 2)[[*members]]  # (R, T, streams)
    codes = np.random.default_rng(5).integers(0, config.codebook_size, (2, config.n_streams - 1))
    previous = codes[[*members]].astype(np.int32)
    if side.kind != "mlx":
        made = side.teacher_forced(read.swapaxes(1, 2))
        text = read[:, -1:, 0], read[:, -1:, 1]
        stages = side.stages(made["hidden"][:, -1:], previous[..., None], text)
        found = {name: made[name] for name in ("hidden", "action_logits", "cb0_logits")}
        logits = {f"stage {i}": stages[f"stage.{i}.logits"][:, 0] for i in range(config.n_streams - 1)}
        return {name: value[:, -1] for name, value in found.items()} | logits
    steps, stack = FusedDia2(side.network), config.transformer
    shape = len(read), stack.num_key_value_heads, STEPS, stack.head_dim
    held = [RowCache(mx.zeros(shape), mx.zeros(shape), RowPositions(STEPS)) for _ in steps.trunk.layers]
    hidden = mx.zeros(0)
    for step in range(STEPS):
        places = np.full(len(read), step, np.int32)
        hidden = steps.hidden(mx.array(read[:, step]), places, places, held, texts=len(read))
    made = {"hidden": hidden, "action_logits": steps.actions(hidden), "cb0_logits": steps.codes(hidden)}
    projected, cache, depformer = steps.stages(hidden), steps.new_stages(len(read)), side.network.depformer
    main, second = mx.array(read[:, -1, 0]), mx.array(read[:, -1, 1])
    for stage in range(config.n_streams - 1):
        embedded = depformer.audio_embeds[stage](mx.array(previous[:, stage]))
        if stage == 0 and depformer.text_embed is not None:
            embedded = embedded + depformer.text_embed(main, second)
        made[f"stage {stage}"] = steps.stage(stage, projected, embedded, cache)
    return {name: np.array(value) for name, value in made.items()}


@CONFIGS
def test_steps_in_whole_blocks_are_as_near_to_float64(config: Dia2Config) -> None:
    """And a row's numbers in float32 on a CPU are, to the bit, those that it has alone."""
    compare(config, lambda side: stepped(side, [0, 1]))
    if mx.default_device().type == mx.DeviceType.gpu:
        return
    side, members = bench(config).side, [0, 1] * 6 + [0]  # more than a block of OpenBLAS's kernels
    together = stepped(side, members)
    for member in (0, 1):
        for name, alone in stepped(side, [member]).items():
            for row in range(member, len(members), 2):
                np.testing.assert_array_equal(together[name][row], alone[0], f"{name}, row {row}")


@CONFIGS
def test_steps_one_by_one_are_the_whole(config: Dia2Config) -> None:
    """With a cache, and with a repeated position as after a prefix."""
    tokens = np.ascontiguousarray(ids(config).swapaxes(1, 2))
    positions = [0, 1, 2, 3, 3, 4, 5, 6, 7]

    def run(side: Dia2Side) -> dict[str, np.ndarray]:
        transformer, made = side.network.transformer, []
        with side.inference():
            cache = transformer.new_cache()
            made.append(transformer(side.array(tokens[:, :4]), 0, cache))
            for step in range(4, STEPS):
                made.append(transformer(side.array(tokens[:, step : step + 1]), positions[step], cache))
            assert cache[0].length == STEPS
            hidden = [side.numpy(part) for part in made]
        return {"hidden": np.concatenate(hidden, axis=1)}

    compare(config, run)
    known = bench(config).torch64.teacher_forced(ids(config))["hidden"]
    np.testing.assert_allclose(run(bench(config).torch64)["hidden"][:, :4], known[:, :4], rtol=0, atol=1e-12)
    assert np.abs(run(bench(config).torch64)["hidden"][:, 4] - known[:, 4]).max() > 1e-6


def test_codes_only_are_predicted_by_the_depformer() -> None:
    side = bench(TINY).side
    made = side.stages(
        np.zeros((1, 1, 20), np.float32), np.zeros((1, 5, 1), np.int32), [np.zeros((1, 1), np.int32)] * 2
    )
    assert made["stage.0.logits"].shape[-1] == TINY.codebook_size == 33
    mx.clear_cache()
