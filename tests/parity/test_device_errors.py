"""Errors of Metal from stand-ins at each call where a network runs: every model and door, on both sides.

Each has its message, and the next request speaks as if nothing had happened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial, reduce
from itertools import count
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from tests.contract.speakers import SMALL, every_side, speaker
from tests.metal_errors import INTERACTIVITY, LARGER, LATE, MESSAGES
from tests.parity.recorded_runs import DEEP, FAST, FIRST, SAID, speech
from tests.tiny.dia2 import recording
from tests.tiny.metavoice_pipeline import reference
from tests.tiny.recordings import snippet
from tts_core.bulk.asking import Work
from tts_core.bulk.rows import Row
from tts_core.bulk.speaking import Speaker, codes_hash
from tts_core.errors import GenerationError, SpeechError
from tts_core.nn.beside import Then
from tts_core.options import changed, options_class
from tts_core.prompt import Prompt
from tts_core.results import GenerationResult, join
from tts_core.serving.engine import SpeechEngine
from tts_core.serving.session import Failed, Part

pytestmark = pytest.mark.rest

TEXT = "The inn is near."
OPTIONS: dict[str, dict[str, Any]] = {
    "dia": {"seed": 3, "max_frames": 10},
    "dia2": {"seed": 3, "max_frames": 3},
    "mars5": {**FAST, "seed": 15, "timesteps": 2, "max_frames": 4, "generate_max_len_override": 62},
    "metavoice": {"seed": 3, "max_frames": 4},
    "qwen3": {"seed": 3, "max_frames": 4},
}
SLOTS = ("slots.join", "slots.launch", "slots.read")
# by model, the calls that run its networks
CALLS: dict[str, tuple[str, ...]] = {
    "dia": ("codec.encode", *SLOTS, "decode_windows"),
    "dia2": ("codec.encode", "slots.join", "slots.act", "slots.draw", "slots.read", "decode"),
    "mars5": ("codec.encode", *SLOTS, "begin", "timestep", "decode"),
    "metavoice": ("speaker_encoder.embed", *SLOTS, "fill", "decode"),
    "qwen3": ("network.speaker_encoder.embed", "codec.encode", *SLOTS, "codec.decode_piece"),
}
EVERY = [(model, call) for model, calls in CALLS.items() for call in calls]
ENCODE = ("codec.encode", "speaker_encoder.embed", "network.speaker_encoder.embed")
_tries = count()


def prompt(model: str, call: str) -> Any:
    """A recording that no cache knows, if `call` reads it; else no recording."""
    if call not in ENCODE:
        return VOICE[model]
    scale = np.float32(1 - 1e-4 * next(_tries))
    told = {"dia2": recording, "metavoice": reference, "qwen3": lambda: VOICE["qwen3"]}.get(model)
    if told is not None:
        return Prompt(tuple(replace(one, audio=scale * np.asarray(one.audio)) for one in told().references))
    return snippet(scale * speech(0.4, 16_000), SAID if model == "dia" else None)


class Standing:
    """A call that raises an error while there is one. calls: how often.  passes: so many calls before."""

    def __init__(self, call: Callable[..., Any]):
        self.call, self.error, self.calls, self.passes = call, cast(Exception | None, None), 0, 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        if self.error is not None and self.calls > self.passes:
            raise self.error
        return self.call(*args, **kwargs)


def stand_in(pipeline: Any, call: str, patch: pytest.MonkeyPatch) -> Standing:
    """Put a stand-in in the place of one of the engine's calls, its slots' included."""
    *path, name = call.split(".")
    if call == "timestep":
        standing, build = Standing(lambda: None), pipeline.engine.together

        def together(runs: Sequence[Any]) -> Standing:
            standing.call = build(runs)
            return standing

        patch.setattr(pipeline.engine, "together", together)
        return standing
    if path != ["slots"]:
        owner = reduce(getattr, path, pipeline.engine)
        standing = Standing(getattr(owner, name))
        patch.setattr(owner, name, standing)
        return standing
    standing, opened = Standing(lambda: None), pipeline.engine.slots

    def slots(*args: Any, **kwargs: Any) -> Any:
        made = opened(*args, **kwargs)
        standing.call = getattr(made, name)
        setattr(made, name, standing)
        return made

    patch.setattr(pipeline.engine, "slots", slots)
    return standing


class Source:
    """A model that is loaded."""

    prompts: Sequence[Any] | None = None  # in place of the caller's, if given

    def __init__(self, model: str, pipeline: Any):
        self.model, self.load, self.fed = model, lambda: pipeline, model == "dia2"

    def request(self, text: str, options: Any, prompt: Any) -> Any:
        chosen = changed(options_class(self.model)(), options)
        return self.load().request(text, chosen, self.prompts[0] if self.prompts else prompt)


Speak = Callable[[Any], str]  # from a prompt to the hash of its codes


@contextmanager
def generate(model: str, pipeline: Any) -> Iterator[Speak]:
    """As `mlx-port generate` and a caller in Python."""
    yield lambda prompt: codes_hash(pipeline.generate(TEXT, prompt=prompt, **OPTIONS[model]).codes)


@contextmanager
def serve(model: str, pipeline: Any) -> Iterator[Speak]:
    """As a server."""
    engine = SpeechEngine({"it": cast(Any, Source(model, pipeline))}, places=2, warm_up=False)
    engine.start()
    assert engine.wait_ready()

    def speak(prompt: Any) -> str:
        return codes_hash(join(list(engine.submit("it", TEXT, options=OPTIONS[model], prompt=prompt))).codes)

    yield speak
    assert engine.ready
    engine.close()


@contextmanager
def batch(model: str, pipeline: Any) -> Iterator[Speak]:
    """As a worker of `mlx-port batch`."""
    source, prompts = Source(model, pipeline), [None]
    work = Work(OPTIONS[model], Path(), ".wav", None)
    open_session = partial(pipeline.session, 2, streamed=False)
    speaker = Speaker(cast(Any, source), open_session, work)
    source.prompts = prompts

    def speak(prompt: Any) -> str:
        prompts[:] = [prompt]
        row = Row(0, "a", TEXT, seed=OPTIONS[model]["seed"])
        [ended] = speaker.speak([(row, "key")])
        if ended.error is not None:
            raise SpeechError(ended.error)
        return ended.fields["codes_sha256"]

    yield speak


@pytest.mark.parametrize(
    ("door", "side", "model", "call"),
    [
        *((generate, side, *one) for one in EVERY for side in ("torch", "mlx")),
        *((serve, "mlx", *one) for one in EVERY),
        *((batch, "torch", *one) for one in EVERY),
    ],
    ids=lambda one: one if isinstance(one, str) else one.__name__,
)
def test_each_error_has_its_message_and_the_next_request_speaks(
    door: Any, side: str, model: str, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Server and batch speak through the same session, so one side each."""
    pipeline = speaker(model, side)
    standing = stand_in(pipeline, call, monkeypatch)
    with door(model, pipeline) as speak:
        for words, beginning in MESSAGES.items():
            standing.error, standing.calls = RuntimeError(words), 0
            with pytest.raises(SpeechError) as caught:
                speak(prompt(model, call))
            assert str(caught.value).startswith(beginning)
            assert words in str(caught.value)
            assert standing.calls
        standing.error = None
        given = prompt(model, call)
        heard = speak(given)
    assert heard == codes_hash(pipeline.generate(TEXT, prompt=given, **OPTIONS[model]).codes)


PIECES = dict.fromkeys(CALLS, "The inn is near. [pause:0.1] There it ends.")
PIECES["dia2"] = " ".join(f"[S{1 + turn % 2}] This is turn {turn}. It has some words." for turn in range(6))


VOICE = {"dia": None, "dia2": None, "mars5": DEEP, "metavoice": FIRST, "qwen3": SMALL["qwen3"].voices[1]}
LONGER: dict[str, dict[str, Any]] = {
    "dia": {"max_frames": 60},
    "dia2": {"max_frames": None},
    "mars5": {"max_frames": None},
    "metavoice": {"max_frames": 40},
    "qwen3": {"max_frames": 300},
}


def begin(model: str, pipeline: Any, text: str) -> tuple[Any, list[Any]]:
    """Open a session with two requests of one text and other seeds."""
    session, kind = pipeline.session(2), options_class(model)
    given = [{**OPTIONS[model], **LONGER[model], "seed": seed} for seed in (3, 4)]
    asked = [pipeline.request(text, changed(kind(), one), VOICE[model]) for one in given]
    for one in asked:
        session.join(one)
    return session, asked


def heard(session: Any) -> tuple[dict[int, GenerationResult], dict[int, Exception]]:
    """Run a session to its end. Returns the speech, and the errors, by key."""
    parts: dict[int, list[GenerationResult]] = {}
    failed: dict[int, Exception] = {}
    while session.running:
        for event in session.step():
            if isinstance(event, Failed):
                failed[event.key] = event.error
            else:
                assert isinstance(event, Part)
                parts.setdefault(event.key, []).append(event.result)
    return {key: join(made) for key, made in parts.items() if key not in failed}, failed


every_network = pytest.mark.parametrize("model", list(CALLS))


@every_side
@every_network
def test_a_piece_that_cannot_begin_fails_alone_unless_the_error_may_be_the_batchs(
    model: str, side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Metal's errors of commands may belong to a step, so the batch ends; a lack at once is the request's."""
    pipeline = speaker(model, side)
    standing = stand_in(pipeline, "slots.join", monkeypatch)
    for words in (LARGER, INTERACTIVITY):
        standing.error, standing.calls = None, 0
        session, _ = begin(model, pipeline, PIECES[model])
        standing.error, standing.passes = RuntimeError(words), 2
        if words in LATE:
            with pytest.raises(RuntimeError) as caught:
                heard(session)
            assert caught.value is standing.error
        else:
            _, failed = heard(session)
            assert len(failed) == 2
            assert all(str(error).startswith(MESSAGES[words]) for error in failed.values())
        assert standing.calls > 2
        session.close()


@every_side
@every_network
def test_sound_that_is_exactly_zero_is_an_error(
    model: str, side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the request by itself; what is shared is first computed again for each half."""
    pipeline = speaker(model, side)
    name = {"dia-torch": "_launch", "dia-mlx": "_decode", "qwen3": "decode_piece"}.get(
        model if model == "qwen3" else f"{model}-{side}", "decode"
    )
    owner = pipeline.engine.codec if model == "qwen3" else pipeline.engine
    decode, most = getattr(owner, name), 0

    def decode_some(ones: Any, *args: Any, **kwargs: Any) -> Any:
        """Give zeros for more than `most`, as if they lacked memory."""
        made = decode(ones, *args, **kwargs)
        if model in ("dia2", "qwen3"):  # each request by itself
            return made if most else (0 * made[0], made[1])
        if len(ones) <= most:
            return made
        return Then(made, silence) if name == "_launch" else silence(made)

    def silence(sounds: Any) -> list[Any]:
        return [0 * one for one in sounds]

    monkeypatch.setattr(owner, name, decode_some)
    with pytest.raises(GenerationError, match=r"exactly zero, .* mlx-port doctor"):
        pipeline.generate(TEXT, prompt=VOICE[model], **OPTIONS[model])
    spoken, failed = heard(begin(model, pipeline, TEXT)[0])
    assert not spoken
    assert [type(error) for error in failed.values()] == [GenerationError] * 2
    most = 1
    session, asked = begin(model, pipeline, TEXT)
    spoken, failed = heard(session)
    assert not failed
    for one, request in zip(spoken.values(), asked, strict=True):
        np.testing.assert_array_equal(one.codes, join(list(pipeline.speak(request))).codes)
