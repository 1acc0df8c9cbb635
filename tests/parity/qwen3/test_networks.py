"""Qwen3-TTS's networks, MLX against PyTorch: every layer, and single steps with caches."""

from functools import cache

import numpy as np
import pytest

from tests.golden.bench import Bench
from tests.golden.qwen3_bench import ModelSide
from tests.golden.qwen3_checks import Row, prompt_of, read_row
from tests.sides import Side
from tests.tiny.inputs import normal
from tests.tiny.networks import qwen3_config, speaker_config, tiny
from tests.tolerance import assert_within
from tts_core.qwen3 import layout as layouts
from tts_core.qwen3.config import MODES
from tts_core.qwen3.layout import Qwen3Recording

KINDS = ("mlx", "torch", "float64")
modes = pytest.mark.parametrize("mode", MODES)


@cache
def bench(mode: str) -> Bench[ModelSide]:
    weights = tiny(qwen3_config(mode), seed=4)
    sides = {kind: ModelSide(kind, Side(kind).network("qwen3", weights)) for kind in KINDS}
    return Bench.load("mlx", sides.__getitem__)


def row(mode: str, *, streamed: bool) -> Row:
    """A text in each mode's own layout: with a recording, a named speaker, or an instruction."""
    config, random = qwen3_config(mode), np.random.default_rng(7)
    text, vector, frames, recording, voice = random.integers(0, 256, 15).tolist(), None, None, None, -1
    if mode == "base":
        recording, voice = Qwen3Recording(tuple(random.integers(0, 256, 9).tolist()), 4), layouts.SPEAKER
        vector = normal(5, config.talker.hidden_size)
        frames = random.integers(0, config.codebook_size, (1, config.n_codebooks, 4)).astype(np.int32)
    elif mode == "custom_voice":
        voice = config.speakers[1].id
    instruction = random.integers(0, 256, 6).tolist() if mode == "voice_design" else ()
    laid = layouts.build(
        config,
        text,
        language=dict(config.languages)["english"],
        voice=voice,
        instruction=instruction,
        recording=recording,
        streamed=streamed,
    )
    return Row(mode, laid, vector, frames, 3)


def codes(mode: str, steps: int) -> np.ndarray:
    config = qwen3_config(mode)
    return np.random.default_rng(steps).integers(
        0, config.codebook_size, (steps, config.n_codebooks), np.int32
    )


@modes
def test_steps_one_by_one_are_the_whole(mode: str) -> None:
    """With caches, the talker over frames, the predictor over stages."""
    frames, given = codes(mode, 5), row(mode, streamed=True)

    def run(side: ModelSide) -> dict[str, np.ndarray]:
        talker, made = side.network.talker, {}
        config = side.network.config
        ids = [*given.layout.trailing, *[config.tts_pad_id] * len(frames)][: len(frames)]
        with side.inference():
            prompt, cache = prompt_of(side, given), talker.new_cache()
            hidden, position = [talker(prompt, 0, cache)[:, -1:]], prompt.shape[1]
            texts = talker.embed_text(side.array(np.array(ids, np.int32)))[None]
            read = talker.embed_frames(side.array(np.ascontiguousarray(frames.T[None]))) + texts
            for step in range(len(frames)):
                hidden.append(talker(read[:, step : step + 1], position + step, cache))
            made["hidden"] = np.concatenate([side.numpy(each)[0] for each in hidden])
            predictor, stages, code = talker.code_predictor, [], side.array(frames[:1])
            other, first = predictor.new_cache(), talker.model.codec_embedding(code[:, :1])
            x = side.array(np.concatenate([side.numpy(hidden[0]), side.numpy(first)], axis=1))
            for stage in range(predictor.stages):
                stages.append(side.numpy(predictor(stage, x, other)))
                x = predictor.embed(stage, code[:, stage + 1 : stage + 2])
            made["stage_logits"] = np.stack(stages, axis=1)
        return made

    trio = bench(mode)
    own, known, truth = (run(side) for side in (trio.side, trio.torch32, trio.torch64))
    whole = read_row(trio.torch64, given, frames)
    np.testing.assert_allclose(truth["hidden"], whole["hidden"], rtol=0, atol=1e-11)
    np.testing.assert_allclose(truth["stage_logits"], whole["stage_logits"][:1], rtol=0, atol=1e-11)
    for name in truth:
        assert_within(own[name], known[name], truth[name], name)


@pytest.mark.parametrize("frames", [7, 8, 31])
def test_speaker_encoder(frames: int) -> None:
    """From the shortest recording on, whose padding repeats almost all of it."""
    config = speaker_config(64)
    assert config.least_frames == 7
    mel = normal(2, 2, frames, config.mel_dim)

    def run(side: ModelSide) -> np.ndarray:
        with side.inference():
            return side.numpy(side.network.speaker_encoder(side.array(mel)))

    bench("base").parity(f"{frames} frames", run)
