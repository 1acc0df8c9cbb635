"""Sessions of every model on both sides: requests of a running batch sound as by themselves."""

from typing import Any

import numpy as np

from tests.parity.test_delivery import OPTIONS, every_model, every_side, voice
from tts_core.options import options_class
from tts_core.results import GenerationResult, join
from tts_core.serving.session import Part, Session


def request(model: str, side: str, text: str, **changes: Any) -> Any:
    """A checked request with the model's options of tests/parity/test_delivery.py."""
    given = {**OPTIONS[model], **changes}
    prompt = given.pop("prompt", None)
    return voice(model, side).request(text, options_class(model)(**given), prompt)


def spoken(session: Session, *keys: int) -> list[GenerationResult]:
    """Run a session to its end; return the speech of each key."""
    parts: dict[int, list[GenerationResult]] = {key: [] for key in keys}
    while session.running:
        for event in session.step():
            assert isinstance(event, Part), event
            parts[event.key].append(event.result)
    return [join(parts[key]) for key in keys]


@every_model
@every_side
def test_a_session_speaks_as_the_pipeline(model: str, side: str) -> None:
    """Same codes, captions and, where it is decoded in the same windows, samples; the rehearsal of a warm-up
    gives sound, too.
    """
    session = voice(model, side).session(2)
    key = session.join(session.rehearsal())
    [warm] = spoken(session, key)
    assert warm.codes.shape[1] > 0
    asked = request(model, side, "The inn is near. [pause:0.2] There it ends!")
    assert session.fits(asked)
    [found] = spoken(session, session.join(asked))
    expected = join(list(voice(model, side).speak(asked)))
    np.testing.assert_array_equal(found.codes, expected.codes)
    assert len(found.audio) == len(expected.audio)
    if model != "dia":  # its windows are compared in tests/parity/dia/test_session.py
        np.testing.assert_array_equal(found.audio, expected.audio)
    assert found.finish_reason == expected.finish_reason
    assert found.cues == expected.cues
    session.close()
    assert session.running == 0


@every_model
@every_side
def test_without_listeners_a_session_speaks_as_generate(model: str, side: str) -> None:
    """Sample by sample: its codec has the same windows."""
    text, pipeline = "The inn is near. [pause:0.2] There it ends!", voice(model, side)
    session = pipeline.session(2, streamed=False)
    asked = [request(model, side, one) for one in (text, "Then it thins out.")]
    found = spoken(session, *map(session.join, asked))
    for one, said in zip(found, (text, "Then it thins out."), strict=True):
        expected = pipeline.generate(said, **OPTIONS[model])
        np.testing.assert_array_equal(one.codes, expected.codes)
        np.testing.assert_array_equal(one.audio, expected.audio)
        assert (one.cues, one.finish_reason) == (expected.cues, expected.finish_reason)
