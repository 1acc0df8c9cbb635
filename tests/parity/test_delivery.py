"""Pauses, speed and captions in every model on both sides: streams, pieces and whole results."""

from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.parity.recorded_runs import DEEP, FAST, FIRST, pipeline
from tests.sides import ORACLE, PORT, YARDSTICK
from tests.tiny.dia import compose, dac_config, dac_weights, dia_config, dia_weights
from tests.tiny.metavoice_pipeline import Ending
from tests.tolerance import assert_within
from tts_core.errors import UsageError
from tts_core.results import GenerationResult, join

SILENCES = (0.1, 0.25, 0.4, 0.05)  # seconds
SAID = ("The inn is near.", "Then it thins out.", "There it ends!")
TEXT = "[pause:0.1] {} [pause:0.25] {} <break time='400ms'/> {} [pause:0.05]".format(*SAID)
OPTIONS: dict[str, dict[str, Any]] = {
    "dia": {"seed": 3},
    "mars5": {**FAST, "seed": 15, "prompt": DEEP, "generate_max_len_override": 62},
    "metavoice": {"noise": Ending(3, 12), "prompt": FIRST, "piece_seconds": 20 / 15},
}
MODELS = tuple(OPTIONS)


@cache
def voice(model: str, side: str) -> Any:
    """A small Dia that ends its pieces early; the others as in the recorded runs."""
    if model != "dia":
        return pipeline(side, model)
    config = dia_config(positions=400, text_positions=300)
    both = {"mlx": PORT, "torch": YARDSTICK, "float64": ORACLE}
    return compose(both[side], dia_weights(config, seed=3, eos=1.3), dac_weights(dac_config()))


@cache
def spoken(model: str, side: str, speed: float) -> GenerationResult:
    return voice(model, side).generate(TEXT, speed=speed, **OPTIONS[model])


def gaps(result: GenerationResult) -> list[np.ndarray]:
    """The samples before the first caption, between captions, and after the last."""
    times = [0.0, *(time for cue in result.cues for time in (cue.start, cue.end)), result.audio_seconds]
    places = [round(time * result.sample_rate) for time in times]
    return [result.audio[start:stop] for start, stop in zip(places[::2], places[1::2], strict=True)]


every_model = pytest.mark.parametrize("model", MODELS)
every_side = pytest.mark.parametrize("side", ["torch", "mlx"])


@every_model
@pytest.mark.parametrize(("side", "speed"), [("torch", 1.0), ("torch", 1.6), ("mlx", 1.6)])
def test_pauses_are_silence_of_their_length(model: str, side: str, speed: float) -> None:
    """At any speed, with nothing else between the pieces."""
    result = spoken(model, side, speed)
    said = " ".join(cue.text.removeprefix("[S1] ") for cue in result.cues)
    assert said.split() == " ".join(SAID).split()
    written = [gap for gap, cue in zip(gaps(result), [None, *result.cues], strict=True) if is_end(cue)]
    assert [len(gap) for gap in written] == [round(one * result.sample_rate) for one in SILENCES]
    assert not np.concatenate(gaps(result)).any()


def is_end(cue: Any) -> bool:
    """Check if a written pause follows; MetaVoice cuts a part into several pieces."""
    return cue is None or cue.text.endswith((".", "!"))


@every_model
@every_side
def test_a_stream_joins_to_the_whole(model: str, side: str) -> None:
    """Equal samples and captions, also in a batch; Dia's windows, and so its rounding, differ in a stream."""
    whole, given = spoken(model, side, 1.6), dict(OPTIONS[model], speed=1.6)
    parts = list(voice(model, side).stream(TEXT, **given))
    assert len(parts) >= 3
    prompt = given.pop("prompt", None)
    [batch] = voice(model, side).generate_batch([TEXT], prompts=[prompt], **given)
    np.testing.assert_array_equal(batch.audio, whole.audio)
    if model == "dia":
        truth = spoken(model, "float64", 1.6).audio.astype(np.float64)
        assert_within(join(parts).audio, whole.audio, truth, "joined")
    else:
        np.testing.assert_array_equal(join(parts).audio, whole.audio)
    for other in (join(parts), batch):
        np.testing.assert_array_equal(other.codes, whole.codes)
        assert other.cues == whole.cues


@every_side
def test_texts_with_pauses_in_a_batch(side: str) -> None:
    """Dia speaks them one by one, the others together; each equals its single run."""
    texts = ["[S1] Then it thins out.", TEXT, "[pause:0.2] [S2] There it ends!"]
    given: dict[str, Any] = {"max_frames": [60, 90, 40], "speed": 1.6}
    batch = voice("dia", side).generate_batch(texts, seed=[4, 3, 5], **given)
    for place, result in enumerate(batch):
        own = {name: each[place] if isinstance(each, list) else each for name, each in given.items()}
        single = voice("dia", side).generate(texts[place], seed=[4, 3, 5][place], **own)
        np.testing.assert_array_equal(result.codes, single.codes)
        np.testing.assert_allclose(result.audio, single.audio, rtol=0, atol=1e-5)
        assert result.cues == single.cues


@every_model
def test_speed_changes_only_the_length(model: str) -> None:
    """The codes stay the same, and each piece is shorter by the factor."""
    plain, fast = spoken(model, "torch", 1.0), spoken(model, "torch", 1.6)
    np.testing.assert_array_equal(fast.codes, plain.codes)
    assert len(fast.cues) == len(plain.cues)
    for one, other in zip(plain.cues, fast.cues, strict=True):
        slow, quick = ((cue.end - cue.start) * plain.sample_rate for cue in (one, other))
        assert round(quick) == round(round(slow) / 1.6)


@every_model
def test_captions_of_both_sides_agree(model: str) -> None:
    ours, theirs = (spoken(model, side, 1.6).captions() for side in ("mlx", "torch"))
    assert ours.srt() == theirs.srt()
    assert ours.vtt().count(" --> ") == len(ours) >= 3


@every_model
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<speak>Hello.</speak>", "text: <speak> is SSML"),
        ("Hello <prosody rate='slow'>you</prosody>.", "text: <prosody> is SSML"),
        ("Hello. [pause:soon] You.", r"text: \[pause\] at character 8 has no length"),
        ("... !", "text: there are no words in it"),
        ("[pause:1]", "text: there are no words in it"),
        ("[pause:1] ... <break/>", "text: there are no words in it"),
    ],
)
def test_what_cannot_be_spoken(model: str, text: str, message: str) -> None:
    for call in ("generate", "stream"):
        with pytest.raises(UsageError, match=f"^{message}"):
            getattr(voice(model, "torch"), call)(text, **OPTIONS[model])


@every_model
def test_what_looks_like_markup_is_spoken(model: str) -> None:
    text = "if a < b, I <b>am</b> <yours"
    asked = voice(model, "torch").request(text, *prepared(model))
    assert " ".join(asked.pacing.texts).removeprefix("[S1] ") == text


def prepared(model: str) -> tuple[Any, Any]:
    """The options and the prompt of a model's runs."""
    from tts_core.options import changed, options_class

    given = dict(OPTIONS[model])
    prompt = given.pop("prompt", None)
    return changed(options_class(model)(), given), prompt
