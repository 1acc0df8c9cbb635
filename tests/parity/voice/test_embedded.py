"""The embedded voice end to end: both sides speak the same, sampling with the model's defaults."""

from functools import cache

import numpy as np
import pytest

from mlx_port.api import embedded_voice as mlx_voice
from tests.parity.dia import plain
from tests.tolerance import assert_within
from torch_ref import DiaPipeline
from torch_ref.api import embedded_voice as torch_voice
from tts_core.nn.noise import HostNoise
from tts_core.prompt import Prompt
from tts_core.results import GenerationResult, merge
from tts_core.voice.embedded import CODEC, DIA

pytestmark = pytest.mark.rest

TEXTS = [
    "[S1] Hello, this is a voice made by a small network.",
    "[S1] The quick brown fox jumps over the lazy dog.",
    "[S2] She sells sea shells by the sea shore.",
    "[S1] How are you today? [S2] Very well, thank you.",
    "[S1] One, two, three, four, five, six, seven.",
    "[S2] It rained all night. (sighs)",
    "[S1] Déjà vu: a café in Zürich. [S2] 東京 is far away.",
    "[S1] Yes!",
    "[S2] Numbers such as 3.14159 or 1,000 are read aloud.",
    "[S1] Where have they gone? [S2] Home. [S1]",
]
FRAMES = 60
VOICES = {"torch_ref": torch_voice, "mlx_port": mlx_voice}
EVERY_SIDE = pytest.mark.parametrize("name", VOICES)


@cache
def oracle() -> DiaPipeline:
    return DiaPipeline.load(DIA, codec=CODEC, dtype="float64")


@cache
def spoken(name: str) -> list[np.ndarray]:
    """All ten texts in one batch, text i with seed i."""
    return VOICES[name]().generate_codes(TEXTS, seed=list(range(len(TEXTS))), max_frames=FRAMES)


def test_the_voice_is_the_same_model_on_both_sides() -> None:
    assert torch_voice().config == mlx_voice().config
    assert torch_voice().engine.codec.config == mlx_voice().engine.codec.config
    assert torch_voice().config.sampling.temperature > 0
    assert torch_voice().rules == mlx_voice().rules
    assert torch_voice().rules.spoken == "en"


@pytest.mark.parametrize("place", range(len(TEXTS)))
def test_sampled_at_the_defaults(place: int) -> None:
    """Ten texts, each up to its EOS or 60 frames: all codes are equal."""
    ours, theirs = spoken("mlx_port")[place], spoken("torch_ref")[place]
    assert 20 < ours.shape[1] <= FRAMES
    if ours.shape != theirs.shape or (ours != theirs).any():
        raise AssertionError(explained(place, ours, theirs))


def explained(place: int, ours: np.ndarray, theirs: np.ndarray) -> str:
    """First difference of two runs, the one that float64 agrees with, and the distance from a tie."""
    network, sampling = oracle().engine.network, oracle().config.sampling
    truth = plain.generate(network, TEXTS[place], HostNoise(place), sampling, FRAMES)
    frames = min(ours.shape[1], theirs.shape[1])
    parts = np.argwhere((ours[:, :frames] != theirs[:, :frames]).T)
    where = f"frame {parts[0][0]}, channel {parts[0][1]}" if len(parts) else f"the end, frame {frames}"
    equal = {"mlx_port": np.array_equal(ours, truth.codes), "torch_ref": np.array_equal(theirs, truth.codes)}
    return (
        f"{TEXTS[place]!r} differs from {where}; equal to float64: {equal}; smallest lead {truth.margin:.1e}"
    )


def test_some_texts_end_by_themselves() -> None:
    lengths = [codes.shape[1] for codes in spoken("torch_ref")]
    assert min(lengths) < FRAMES
    assert max(lengths) == FRAMES


@EVERY_SIDE
def test_alone_as_in_the_batch(name: str) -> None:
    place = min(range(len(TEXTS)), key=lambda place: spoken(name)[place].shape[1])
    [single] = VOICES[name]().generate_codes([TEXTS[place]], seed=place, max_frames=FRAMES)
    np.testing.assert_array_equal(single, spoken(name)[place])


@cache
def streamed(name: str) -> list[GenerationResult]:
    return list(VOICES[name]().stream(TEXTS[0], seed=0, max_frames=FRAMES))


@EVERY_SIDE
def test_stream(name: str) -> None:
    """Pieces join to the codes of the batch and to the waveform of the whole decode."""
    pieces = streamed(name)
    assert len(pieces) >= 3
    assert pieces[0].token_count < pieces[-1].token_count / 2
    joined = merge(pieces)
    np.testing.assert_array_equal(joined.codes, spoken(name)[0])
    whole = np.asarray(VOICES[name]().engine.codec.decode(joined.codes[None]))[0]
    truth = oracle().engine.codec.decode(joined.codes[None])[0].numpy()
    assert_within(joined.audio, whole, truth, "speech")


def test_waveform() -> None:
    ours, theirs = merge(streamed("mlx_port")), merge(streamed("torch_ref"))
    np.testing.assert_array_equal(ours.codes, theirs.codes)
    assert (ours.sample_rate, ours.samples) == (
        16000,
        ours.codes.shape[1] * oracle().engine.codec.config.hop_length,
    )
    truth = oracle().engine.codec.decode(theirs.codes[None])[0].numpy()
    assert_within(ours.audio, theirs.audio, truth, "speech")


def test_continuing_a_voice() -> None:
    """The voice's own speech: encoded, read and continued equally. It takes no recording, but codes."""
    said = merge(streamed("torch_ref")).audio[:4001]
    codes = {name: np.asarray(voice().engine.codec.encode(said[None])) for name, voice in VOICES.items()}
    assert codes["mlx_port"].shape == (1, 8, 9)  # frames of 480 samples
    np.testing.assert_array_equal(codes["mlx_port"], codes["torch_ref"])
    prompt = Prompt.of(codes=codes["mlx_port"][0], text="[S1] Hello,")
    results = [
        voice().generate("and goodbye.", prompt=prompt, seed=7, max_frames=12) for voice in VOICES.values()
    ]
    np.testing.assert_array_equal(results[0].codes, results[1].codes)
