"""Whole loops: both sides' pipelines against the plain form, and against each other."""

from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.parity.dia import plain
from tests.sides import BY_PACKAGE, ORACLE, Side, assert_parity
from tests.tiny.dia import compose
from tests.tiny.networks import dia_config, tiny
from tests.tiny.recordings import snippet
from tests.tolerance import assert_within
from tts_core.dia.options import DiaSampling
from tts_core.dia.text import tokenize
from tts_core.nn.noise import HostNoise
from tts_core.prompt import Prompt

pytestmark = pytest.mark.rest

GENERATIONS = pytest.mark.parametrize("cross_rope", [False, True], ids=["0626", "v0.1"])
EVERY_SIDE = pytest.mark.parametrize("side", list(BY_PACKAGE.values()), ids=list(BY_PACKAGE))
TEXTS = ["[S1] One, two.", "[S2] a", "[S1] Lorem ipsum dolor sit amet, [S2] consectetur adipiscing elit."]
SETTINGS = {
    "defaults": DiaSampling(3.0, 1.2, 0.9, 20),
    "greedy": DiaSampling(3.0, 0.0, 0.9, 20),
    "no guidance": DiaSampling(0.0, 1.2, 0.9, 20),
    "every id": DiaSampling(3.0, 1.0, 1.0, 0),
    "narrow": DiaSampling(1.5, 0.7, 0.3, 4),
    "hot": DiaSampling(3.0, 3.0, 0.99, 60),
}
FRAMES = 12
SAFE = 1e-4  # of a margin: several times what float32 moves these logits


def weights(cross_rope: bool, eos: float = 1.3):
    return tiny(dia_config(cross_rope=cross_rope), seed=3, eos=eos)


@cache
def oracle(cross_rope: bool) -> Any:
    return ORACLE.network("dia", weights(cross_rope))


@cache
def pipeline(side: Side, cross_rope: bool) -> Any:
    return compose(side, weights(cross_rope), tiny("dac"))


def prompt_codes(frames: int) -> np.ndarray:
    return np.random.default_rng(frames).integers(0, 60, (4, frames)).astype(np.int32)


def arguments(sampling: DiaSampling) -> dict[str, Any]:
    return {
        "cfg_scale": sampling.cfg_scale,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
    }


@cache
def expected_codes(name: str, cross_rope: bool, text: str, seed: int) -> plain.Plain:
    return plain.generate(oracle(cross_rope), text, HostNoise(seed), SETTINGS[name], FRAMES)


@GENERATIONS
@pytest.mark.parametrize("name", SETTINGS)
def test_codes_are_those_of_the_plain_form(name: str, cross_rope: bool) -> None:
    for seed, text in enumerate(TEXTS):
        expected = expected_codes(name, cross_rope, text, seed)
        assert expected.margin > SAFE, f"a near tie of {expected.margin:.1e}: choose another seed"
        for side_name, side in BY_PACKAGE.items():
            [codes] = pipeline(side, cross_rope).generate_codes(
                [text], seed=seed, max_frames=FRAMES, **arguments(SETTINGS[name])
            )
            np.testing.assert_array_equal(codes, expected.codes, err_msg=f"{side_name}: {text}")


def test_the_settings_differ() -> None:
    """The settings of the test above give different codes. Some texts end by themselves, some do not."""
    every = [expected_codes(name, False, text, seed) for name in SETTINGS for seed, text in enumerate(TEXTS)]
    assert len({result.codes.tobytes() for result in every}) == len(every)
    assert {result.finish_reason for result in every} == {"stop", "length"}


@GENERATIONS
@pytest.mark.parametrize("frames", [1, 7])
@pytest.mark.parametrize("last_channel_free", [False, True], ids=["forced", "free"])
def test_codes_behind_a_prompt(cross_rope: bool, frames: int, last_channel_free: bool) -> None:
    prompt, text = prompt_codes(frames), TEXTS[2]
    expected = plain.generate(
        oracle(cross_rope),
        text,
        HostNoise(5),
        SETTINGS["defaults"],
        12,
        prompt=prompt,
        last_channel_free=last_channel_free,
    )
    assert expected.margin > SAFE
    for side in BY_PACKAGE.values():
        [codes] = pipeline(side, cross_rope).generate_codes(
            [text], [prompt], seed=5, max_frames=12, last_channel_free=last_channel_free
        )
        np.testing.assert_array_equal(codes, expected.codes)


@GENERATIONS
@pytest.mark.parametrize("frames", [0, 7])
def test_last_channel_free_changes_its_slots_only(cross_rope: bool, frames: int) -> None:
    """Up to row P + longest delay the grids are equal, except in that row's channels of the longest delay."""
    prompt = prompt_codes(frames) if frames else None
    forced, free = (
        plain.generate(
            oracle(cross_rope),
            TEXTS[0],
            HostNoise(1),
            SETTINGS["every id"],
            12,
            prompt=prompt,
            last_channel_free=way,
        ).rows[: frames + 4]
        for way in (False, True)
    )
    rows, channels = np.nonzero(forced != free)
    assert set(rows) == {frames + 3}
    assert set(channels) == {1, 3}


@GENERATIONS
@EVERY_SIDE
def test_the_unconditional_row_collapses(side: Side, cross_rope: bool) -> None:
    """One constant per layer equals a row of its own that attends to S zero tokens."""
    tokens = tokenize(TEXTS[2])
    network, exact = pipeline(side, cross_rope).engine.network, oracle(cross_rope)
    rows = np.random.default_rng(1).integers(0, 63, (2, 9, 4)).astype(np.int32)

    def logits(of: Side, net: Any, source: Any) -> np.ndarray:
        return of.numpy(net(of.array(rows), net.new_cache(), source))

    plain_form = logits(ORACLE, exact, plain.two_row_source(ORACLE, exact, tokens))
    collapsed = logits(ORACLE, exact, exact.read([ORACLE.array(tokens)], exact.encode_empty()))
    np.testing.assert_allclose(collapsed, plain_form, rtol=0, atol=1e-12)
    assert_within(
        logits(side, network, network.read([side.array(tokens)], network.encode_empty())),
        logits(side, network, plain.two_row_source(side, network, tokens)),
        plain_form,
        "collapsed unconditional row",
    )


def test_the_unconditional_row_reads_no_text() -> None:
    """Zeros of any length encode to one vector, whatever the weights."""

    def run(side: Side) -> np.ndarray:
        network = pipeline(side, False).engine.network if side is not ORACLE else oracle(False)
        zeros = side.array(np.zeros((1, 50), np.int32))
        return side.numpy(network.model.encoder(zeros)) - side.numpy(network.encode_empty())

    assert np.abs(run(ORACLE)).max() < 1e-13
    assert_parity("encoded zeros", lambda side: run(side) + 1)


@EVERY_SIDE
def test_audio_prompt_end_to_end(side: Side) -> None:
    """A prompt of audio equals the prompt of its codes with the transcript before the text."""
    voice = pipeline(side, False)
    samples = np.random.default_rng(3).normal(0, 0.3, 200).astype(np.float32)  # 7 frames, the last one padded
    codes = side.numpy(voice.engine.codec.encode(samples[None]))[0]
    assert codes.shape == (4, 7)
    heard = voice.generate("Hello.", prompt=snippet(samples, "[S1] Said before."), seed=1, max_frames=12)
    read = voice.generate(
        "Hello.", prompt=Prompt.of(text="[S1] Said before.", codes=codes), seed=1, max_frames=12
    )
    [bare] = voice.generate_codes(["[S1] Said before. Hello."], [codes], seed=1, max_frames=12)
    np.testing.assert_array_equal(heard.codes, bare)
    np.testing.assert_array_equal(read.codes, bare)
    np.testing.assert_array_equal(read.audio, heard.audio)
    [other] = voice.generate_codes(["[S1] Said before. Hello."], seed=1, max_frames=12)
    assert bare.shape != other.shape or (bare != other).any(), "the prompt changed nothing"


def test_audio_prompt_gives_the_same_speech_on_both_sides() -> None:
    samples = np.random.default_rng(3).normal(0, 0.3, 200).astype(np.float32)
    prompt = snippet(samples, "[S1] Said before.")
    every = [
        pipeline(side, True).generate("Hello.", prompt=prompt, seed=4, max_frames=12)
        for side in BY_PACKAGE.values()
    ]
    np.testing.assert_array_equal(every[0].codes, every[1].codes)
    codec = ORACLE.network("dac", tiny("dac"))
    truth = ORACLE.numpy(codec.decode(ORACLE.array(every[0].codes[None])))[0]
    assert_within(every[1].audio, every[0].audio, truth, "speech after an audio prompt")
