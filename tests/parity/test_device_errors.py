"""Errors of Metal from stand-ins at each call where a network runs: every model and door, on both sides.

Each has its message, and the next request speaks as if nothing had happened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from tests.contract.speakers import SMALL, every_side, speaker, to_end
from tests.metal_errors import INTERACTIVITY, LARGER, LATE, MESSAGES
from tests.parity.recorded_runs import DEEP, FAST, FIRST, SAID, speech
from tests.parity.stand_ins import CALLS, ENCODE, EVERY, WITHOUT, Call, public_methods, stand_in
from tests.tiny.dia2 import recording
from tests.tiny.metavoice_pipeline import reference
from tests.tiny.recordings import snippet
from tts_core import models
from tts_core.bulk.requests import BulkWork
from tts_core.bulk.rows import TextRow
from tts_core.bulk.speaking import RowSpeaker, codes_hash
from tts_core.errors import GenerationError, SpeechError
from tts_core.nn.beside import Then
from tts_core.options import changed, options_class
from tts_core.prompt import Prompt
from tts_core.results import GenerationResult, merge
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
FRAGMENTS = ("The inn", " is", " near.")
FED: dict[str, Any] = {"max_frames": 12}  # the text comes to its end before
# calls on the other side, too, of the doors that speak through the same session
READS = [(model, Call("slots.read")) for model in CALLS]
_tries = count(1)  # at none, the recording that others speak with
every_network = pytest.mark.parametrize("model", list(CALLS))


def prompt(model: str, call: Call) -> Any:
    """A recording that no cache knows, if the call reads it; else no recording."""
    if model == "qwen3" and call.fed:
        return SMALL[model].voices[0]  # without its words: speech begins with the first of the text
    if call.path not in ENCODE:
        return VOICE[model]
    scale = np.float32(1 - 1e-4 * next(_tries))
    told = {"dia2": recording, "metavoice": reference, "qwen3": lambda: VOICE["qwen3"]}.get(model)
    if told is not None:
        return Prompt(tuple(replace(one, audio=scale * np.asarray(one.audio)) for one in told().references))
    return snippet(scale * speech(0.4, 16_000), SAID if model == "dia" else None)


def options(model: str, call: Call) -> dict[str, Any]:
    return {**OPTIONS[model], **(FED if call.fed else {}), **call.options}


class Source:
    """A model that is loaded."""

    prompts: Sequence[Any] | None = None  # in place of the caller's, if given

    def __init__(self, model: str, pipeline: Any):
        self.model, self.load, self.fed = model, lambda: pipeline, models.MODELS[model].fed

    def live(self, text: str, options: Any, prompt: Any) -> Any:
        chosen, facts = changed(options_class(self.model)(), options), self.load().engine.facts
        return facts.live(text, chosen, prompt)

    def request(self, text: str, options: Any, prompt: Any) -> Any:
        chosen = changed(options_class(self.model)(), options)
        return self.load().request(text, chosen, self.prompts[0] if self.prompts else prompt)


Speak = Callable[[Any], str]  # from a prompt to the hash of its codes


@contextmanager
def generate(model: str, pipeline: Any, call: Call) -> Iterator[Speak]:
    """As `mlx-port generate` and a caller in Python."""

    def speak(prompt: Any) -> str:
        given = {"prompt": prompt, **options(model, call)}
        if call.fed:
            return codes_hash(merge(list(pipeline.stream(iter(FRAGMENTS), **given))).codes)
        return codes_hash(pipeline.generate(TEXT, **given).codes)

    yield speak


@contextmanager
def serve(model: str, pipeline: Any, call: Call) -> Iterator[Speak]:
    """As a server."""
    engine = SpeechEngine({"it": cast(Any, Source(model, pipeline))}, places=2, warm_up=False)
    engine.start()
    assert engine.wait_ready()

    def speak(prompt: Any) -> str:
        text, *rest = FRAGMENTS if call.fed else (TEXT,)
        found = engine.submit("it", text, options=options(model, call), prompt=prompt, more=call.fed)
        for fragment in rest:
            found.feed(fragment)
        found.end()
        return codes_hash(merge(list(found)).codes)

    yield speak
    assert engine.ready
    engine.close()


@contextmanager
def batch(model: str, pipeline: Any, call: Call) -> Iterator[Speak]:
    """As a worker of `mlx-port batch`."""
    source, prompts = Source(model, pipeline), [None]
    work = BulkWork(options(model, call), Path(), ".wav", None)
    open_session = partial(pipeline.session, 2, streamed=False)
    speaker = RowSpeaker(cast(Any, source), open_session, work)
    source.prompts = prompts

    def speak(prompt: Any) -> str:
        prompts[:] = [prompt]
        row = TextRow(0, "a", TEXT, seed=OPTIONS[model]["seed"])
        [ended] = speaker.speak([(row, "key")])
        if ended.error is not None:
            raise SpeechError(ended.error)
        return ended.fields["codes_sha256"]

    yield speak


DOORS = {"generate": generate, "serve": serve, "batch": batch}


def places(model: str, call: Call) -> Iterator[tuple[Any, str]]:
    """Doors and sides at which a call fails. MLX runs all work in order."""
    sides = {"generate": ("torch", "mlx"), "serve": ("mlx",), "batch": ("torch",)}
    if (model, call) in READS:
        sides = dict.fromkeys(sides, ("torch", "mlx"))
    if call.beside:
        sides = dict.fromkeys(sides, ("torch",))
    for door in call.doors:
        if not (call.fed and door == "batch"):
            yield from ((DOORS[door], side) for side in sides[door])


@every_network
def test_every_method_that_runs_a_network_is_here(model: str) -> None:
    assert public_methods(model) - WITHOUT == CALLS[model].keys()


@pytest.mark.parametrize(
    ("door", "side", "model", "call"),
    [(door, side, *one) for one in EVERY for door, side in places(*one)],
    ids=lambda one: getattr(one, "__name__", str(one)),
)
def test_each_error_has_its_message_and_the_next_request_speaks(
    door: Any, side: str, model: str, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Server and batch speak through the same session: one side each, and a call on the other."""
    pipeline = speaker(model, side)
    standing = stand_in(model, side, call, monkeypatch)
    with door(model, pipeline, call) as speak:
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
    with generate(model, pipeline, call) as speak:
        assert heard == speak(given)


@every_side
@every_network
def test_a_running_batch_that_cannot_open(model: str, side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For one text, and at a server's start; one that cannot open again unloads the model, which a request
    loads.
    """
    pipeline, opening, reading = speaker(model, side), Call("slots"), Call("slots.read")
    read = stand_in(model, side, reading, monkeypatch)
    standing = stand_in(model, side, opening, monkeypatch)
    for words, beginning in MESSAGES.items():
        standing.error, standing.calls = RuntimeError(words), 0
        with (
            generate(model, pipeline, opening) as speak,
            pytest.raises(SpeechError, match=f"^{beginning}"),
        ):
            speak(prompt(model, opening))
        engine = SpeechEngine({"it": cast(Any, Source(model, pipeline))}, places=2, warm_up=False)
        engine.start()
        with pytest.raises(SpeechError, match=f"^{beginning}"):
            engine.wait_ready()
        engine.close()
        assert standing.calls == 2
    standing.error = None
    with serve(model, pipeline, opening) as speak:
        standing.error, read.error = RuntimeError(LARGER), RuntimeError(INTERACTIVITY)
        with pytest.raises(SpeechError, match=MESSAGES[INTERACTIVITY]):
            speak(prompt(model, opening))
        with pytest.raises(SpeechError, match=MESSAGES[LARGER]):
            speak(prompt(model, opening))
        standing.error = read.error = None
        heard = speak(prompt(model, opening))
    with generate(model, pipeline, opening) as speak:
        assert heard == speak(prompt(model, opening))


@every_side
def test_a_warm_up_that_fails(side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a server's start, where Dia's calls of the codec are captured."""
    pipeline = speaker("dia", side)
    standing = stand_in("dia", side, Call("prepare"), monkeypatch)
    for words, beginning in MESSAGES.items():
        standing.error, standing.calls = RuntimeError(words), 0
        engine = SpeechEngine({"it": cast(Any, Source("dia", pipeline))}, places=2)
        engine.start()
        with pytest.raises(SpeechError, match=f"^{beginning}"):
            engine.wait_ready()
        engine.close()
        assert standing.calls == 1
    standing.error = None
    engine = SpeechEngine({"it": cast(Any, Source("dia", pipeline))}, places=2)
    engine.start()
    assert engine.wait_ready()
    engine.close()


PIECES = dict.fromkeys(CALLS, "The inn is near. [pause:0.1] There it ends.")
PIECES["dia2"] = " ".join(f"[S{1 + turn % 2}] This is turn {turn}. It has some words." for turn in range(6))

# calls in which the first pieces of both requests join: one, where they have as many rows and positions
FIRST_JOINS = {"dia": 1, "dia2": 2, "mars5": 1, "metavoice": 2, "qwen3": 1}
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
    for event in to_end(session):
        if isinstance(event, Failed):
            failed[event.key] = event.error
        else:
            assert isinstance(event, Part)
            parts.setdefault(event.key, []).append(event.result)
    return {key: merge(made) for key, made in parts.items() if key not in failed}, failed


@every_side
@every_network
def test_a_piece_that_cannot_begin_fails_alone_unless_the_error_may_be_the_batchs(
    model: str, side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Metal's errors of commands may belong to a step, so the batch ends; a lack at once is the request's."""
    pipeline = speaker(model, side)
    standing = stand_in(model, side, Call("slots.join"), monkeypatch)
    for words in (LARGER, INTERACTIVITY):
        standing.error, standing.calls = None, 0
        session, _ = begin(model, pipeline, PIECES[model])
        standing.error, standing.passes = RuntimeError(words), FIRST_JOINS[model]
        if words in LATE:
            with pytest.raises(RuntimeError) as caught:
                heard(session)
            assert caught.value is standing.error
        else:
            _, failed = heard(session)
            assert len(failed) == 2
            assert all(str(error).startswith(MESSAGES[words]) for error in failed.values())
        assert standing.calls > FIRST_JOINS[model]
        session.close()


@every_side
@every_network
def test_sound_that_is_exactly_zero_is_an_error(
    model: str, side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the request by itself; what is shared is first computed again for each half."""
    pipeline = speaker(model, side)
    owner, name = pipeline.engine, {"torch": "_launch", "mlx": "_decode"}[side]  # of Dia
    if model == "mars5":
        name = "launch"
    elif model == "metavoice":
        owner, name = pipeline.engine.decoders["vocos"], "decode"
    elif model in ("dia2", "qwen3"):
        owner, name = pipeline.engine.codec, "decode_window"
    decode, most = getattr(owner, name), 0

    def decode_some(ones: Any, *args: Any, **kwargs: Any) -> Any:
        """Give zeros for more than `most`, as if they lacked memory."""
        made = decode(ones, *args, **kwargs)
        if model in ("dia2", "qwen3"):  # each request by itself
            return made if most else (0 * made[0], made[1])
        if len(ones) <= most:
            return made
        return Then(made, silence) if name in ("launch", "_launch") else silence(made)

    def silence(sounds: Any) -> list[Any]:
        return [0 * one for one in sounds]

    monkeypatch.setattr(owner, name, decode_some)
    if model == "dia":  # a stream's windows are each by itself
        piece = pipeline.engine.codec.decode_window

        def decode_window(*args: Any) -> Any:
            made = piece(*args)
            return made if most else (0 * made[0], made[1])

        monkeypatch.setattr(pipeline.engine.codec, "decode_window", decode_window)
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
        np.testing.assert_array_equal(one.codes, merge(list(pipeline.speak(request))).codes)
