"""Dia's pipeline on both sides: batches, streams, limits, seeds and device reads."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.parity.device_reads import Forbidden, Watched
from tests.sides import PORT, Side
from tests.tiny.dia import compose
from tests.tiny.networks import EOS, dac_config, dia_config, tiny
from tests.tiny.noise import CountingNoise
from tts_core.dia import net
from tts_core.errors import CheckpointError
from tts_core.prompt import Prompt

pytestmark = pytest.mark.rest

GENERATIONS = pytest.mark.parametrize("cross_rope", [False, True], ids=["0626", "v0.1"])
TEXTS = [
    "[S1] One, two.",
    "[S2] a",
    "[S1] Lorem ipsum dolor sit amet, [S2] consectetur adipiscing elit.",
    "[S1] Two words",
    "[S1] The fifth one. [S2]",
]


@cache
def pipeline(side: Side, *, cross_rope: bool = False, eos: float = 1.3, positions: int = 2400) -> Any:
    config = dia_config(cross_rope=cross_rope, positions=positions)
    return compose(side, tiny(config, seed=3, eos=eos), tiny("dac"))


def prompt_codes(frames: int) -> np.ndarray:
    return np.random.default_rng(frames).integers(0, 60, (4, frames)).astype(np.int32)


PROMPTS = [
    prompt_codes(7),
    None,
    Prompt.of(text="[S1] Before.", codes=prompt_codes(3)),
    None,
    prompt_codes(12),
]
SEEDS, LIMITS = [1, 2, 3, 4, 5], [3, 20, 9, 1, 14]


@pytest.mark.parametrize(
    "size", [{"n_codebooks": 3, "codebook_dim": (3, 4, 5)}, {"codebook_size": 59}], ids=str
)
def test_a_codec_of_another_model_is_refused(side: Side, size: dict[str, Any]) -> None:
    """Without the error its missing codebooks would silently be left out of the speech."""
    dia, codec = tiny("dia"), tiny(replace(dac_config(), **size))
    with pytest.raises(
        CheckpointError, match="the model needs 4 codebooks of 60; use the codec of its release"
    ):
        compose(side, dia, codec)


def test_eos_inside_a_prompt_is_ignored() -> None:
    """A text that predicts EOS inside its prompt, whose rows MLX draws too, still speaks after it."""
    voice = pipeline(PORT, eos=6.0)
    prompts = [None, prompt_codes(30)]
    drawn: list[np.ndarray] = []
    with watched(PORT, drawn.append):
        codes = voice.generate_codes(TEXTS[:2], prompts, seed=2, max_frames=8)
    inside = np.array(drawn)[:29, 1, 0]
    assert (inside == EOS).any(), "nothing was predicted there: choose another seed"
    [single] = voice.generate_codes([TEXTS[1]], [prompts[1]], seed=2, max_frames=8)
    np.testing.assert_array_equal(codes[1], single)
    assert single.shape[1] > 0


def test_every_step_draws_its_own_numbers(side: Side) -> None:
    """One call per row, numbered from the text's own first row, also after a longer prompt."""
    voice, sources = pipeline(side, eos=0.0), [CountingNoise(1), CountingNoise(2)]
    voice.generate_codes(TEXTS[:2], [None, prompt_codes(5)], noise=sources, max_frames=6)
    rows = 6 + 3  # frames and the longest delay
    assert sources[0].steps[:rows] == list(range(rows))
    assert sources[1].steps == list(range(len(sources[1].steps)))
    assert len(sources[1].steps) >= rows


def test_temperature_zero_draws_nothing(side: Side) -> None:
    noise = CountingNoise(1)
    voice = pipeline(side)
    [codes] = voice.generate_codes([TEXTS[0]], temperature=0, noise=noise, max_frames=12)
    assert noise.steps == []
    [again] = voice.generate_codes([TEXTS[0]], temperature=0, seed=99, max_frames=12)
    np.testing.assert_array_equal(codes, again)


@pytest.mark.parametrize("prompt", [None, prompt_codes(5)], ids=["bare", "prompt"])
def test_max_frames_is_exact_without_eos(side: Side, prompt: np.ndarray | None) -> None:
    voice = pipeline(side, eos=0.0)
    codes = voice.generate_codes(TEXTS[:4], [prompt] * 4, max_frames=[1, 2, 9, 30], seed=1)
    assert [each.shape for each in codes] == [(4, 1), (4, 2), (4, 9), (4, 30)]
    for each in codes:
        assert each.dtype == np.int32
        assert each.min() >= 0
        assert each.max() < EOS
    result = voice.generate(TEXTS[0], max_frames=9, seed=1)
    assert (result.finish_reason, result.codes.shape[1]) == ("length", 9)


def test_the_default_limit_is_the_models_room(side: Side) -> None:
    """positions = BOS + frames + longest delay, prompt included."""
    voice = pipeline(side, eos=0.0, positions=30)
    assert voice.config.max_frames == 26
    [bare, prompted] = voice.generate_codes(TEXTS[:2], [None, prompt_codes(6)], seed=1)
    assert (bare.shape[1], prompted.shape[1]) == (26, 20)


def test_the_advice_after_a_cut_follows_the_end_of_each_text(side: Side, caplog: Any) -> None:
    voice = pipeline(side, eos=0.0)
    cut = "another seed, or a full stop at the end of the text, may help"
    texts, advice = ["[S1] One. [S2]", "[S1] Two"], ["another seed may help", cut]
    voice.generate_codes(texts, seed=1)
    assert sorted(message.split("; ")[1] for message in caplog.messages) == sorted(advice)
    caplog.clear()
    for text in texts:
        voice.generate(text, seed=1)
    assert [message.split("; ")[1] for message in caplog.messages] == advice


def test_a_text_may_end_at_once(side: Side) -> None:
    """No frames are a valid result: an empty waveform and 'stop'."""
    voice = pipeline(side, eos=40.0)
    ends = [voice.generate(TEXTS[0], seed=seed, max_frames=20) for seed in range(6)]
    empty = [result for result in ends if result.codes.shape[1] == 0]
    assert empty, "none of them did: choose another weight"
    assert empty[0].finish_reason == "stop"
    assert empty[0].audio.shape == (0,)
    assert empty[0].codes.shape == (4, 0)
    assert empty[0].real_time_factor == np.inf


@GENERATIONS
@pytest.mark.parametrize("prompts", [None, PROMPTS[:3]], ids=["bare", "prompts"])
def test_one_read_from_the_device_a_row(
    side: Side, cross_rope: bool, prompts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_on_a_gpu(side, monkeypatch)
    voice = pipeline(side, cross_rope=cross_rope, eos=0.0)
    voice.generate_codes([TEXTS[0]], seed=1, max_frames=1)  # work done only once, such as the empty text
    read: list[np.ndarray] = []
    with watched(side, read.append), Forbidden(side, monkeypatch, *loop_modules(side)):
        codes = voice.generate_codes(TEXTS[:3], prompts, seed=1, max_frames=10)
    assert [each.shape[1] for each in codes] == [10, 10, 10]
    assert len(read) == 10 + 3  # rows: frames, longest delay
    assert {each.shape for each in read} == {(3, 4)}


def as_on_a_gpu(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take torch's loop of devices: the one of CPUs in float32 reads its ids without the host."""
    if side is not PORT:
        monkeypatch.setattr(side.module("cpu.dia.decoder"), "few_rows", lambda network: None)


def watched(side: Side, seen: Callable[[np.ndarray], None]) -> Watched:
    """Pass the ids of each row, (B, C), to `seen`."""
    return Watched(side.module("batch").RunningBatch, lambda rows: seen(rows[0]), "read")


def loop_modules(side: Side) -> list[Any]:
    return [net, *(side.module(name) for name in ("host", "batch", "dia.decoder"))]
