"""Scenes at the public doors of a model: functions of a door and a seed, which return what was heard by name.

No scene depends on the number of steps that a session takes, nor on the order in which neighbors give parts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tests.contract.speakers import SENTENCES, SMALL, TEXTS, given, unlimited
from tests.parity.doors import MOST_STEPS, Door, Heard, free, listen
from tests.parity.recorded_runs import FIRST, speech
from tests.tiny.recordings import snippet
from tts_core import models
from tts_core.prompt import Prompt
from tts_core.results import GenerationResult

Scene = Callable[[Door, int], dict[str, Heard]]
PAUSED = "The inn is near. [pause:0.1] Then it thins out."
LETTERS = ("The i", "nn is near the hide", ". Then it thins ", "out again. There it ends!")
WAITS = ("The inn is near the hide. ", "Then it thins out again. ", "There it ends!")


def generate(door: Door, seed: int) -> dict[str, Heard]:
    """Three sentences, in pieces if the model needs any; and the stages that are told."""
    told: list[str] = []
    how = given(door.model, **SMALL[door.model].cut)
    whole = door.pipeline.generate(SENTENCES, seed=seed, progress=lambda now: told.append(now.stage), **how)
    return {"whole": Heard([whole], notes=[*dict.fromkeys(told)])}


def captions(door: Door, seed: int) -> dict[str, Heard]:
    """Pauses, a speed, and captions."""
    whole = door.pipeline.generate(PAUSED, seed=seed, speed=1.5, **given(door.model))
    files = [whole.captions().srt(), whole.captions().vtt()]
    return {"paused": Heard([whole], notes=files)}


def stream(door: Door, seed: int) -> dict[str, Heard]:
    how = given(door.model, **SMALL[door.model].cut)
    return {"parts": door.heard(lambda: door.pipeline.stream(SENTENCES, seed=seed, **how))}


def batch(door: Door, seed: int) -> dict[str, Heard]:
    """Texts of several pieces and pauses, with voices and seeds of their own."""
    voices = SMALL[door.model].voices
    options = {**SMALL[door.model].options, **SMALL[door.model].cut}
    texts = [TEXTS[0], SENTENCES, PAUSED, TEXTS[3]]
    found = door.pipeline.generate_batch(
        texts,
        prompts=[voices[0], voices[-1], voices[0], voices[-1]],
        seed=[seed, seed + 1, seed, seed + 2],
        **options,
    )
    return {str(place): Heard([one]) for place, one in enumerate(found)}


def settings(door: Door, seed: int) -> dict[str, Heard]:
    """The options that requests of a running batch differ in, each alone."""
    return {
        str(place): Heard([door.pipeline.generate(TEXTS[1], seed=seed, **given(door.model, **changes))])
        for place, changes in enumerate(SMALL[door.model].settings)
    }


def codes(door: Door, seed: int) -> dict[str, Heard]:
    how = given(door.model)
    prompt = how.pop("prompt")
    text = f"[S1] {TEXTS[0]}" if door.model == "dia" else TEXTS[0]
    found = door.pipeline.generate_codes(
        [text] * 2, None if prompt is None else [prompt] * 2, seed=seed, **how
    )
    return {str(place): Heard(notes=one.tolist()) for place, one in enumerate(found)}


def session(door: Door, seed: int) -> dict[str, Heard]:
    """Joins and leaves: one leaves at its first part, one in silence, others take their places."""
    small, running = SMALL[door.model], door.session(3)
    changes = [{}, small.cut, *small.settings, {"prompt": small.voices[-1]}, {"speed": 1.5}]
    texts = [TEXTS[0], SENTENCES, TEXTS[1], TEXTS[2], PAUSED, TEXTS[3]]
    waiting = [
        door.request(text, seed=seed + place, **own)
        for place, (text, own) in enumerate(zip(texts, changes, strict=True))
    ]
    names: dict[int, str] = {}
    heard: dict[int, Heard] = {}
    count = len(waiting)

    def enter() -> None:
        while waiting and running.fits(waiting[0]):
            key = running.join(waiting.pop(0))
            names[key], heard[key] = str(count - len(waiting) - 1), Heard()

    running.leave(running.join(waiting[1]))
    left = running.join(waiting[1])
    leaver = running.join(door.request(TEXTS[1], seed=seed + 9))
    enter()
    heard[leaver], names[leaver] = Heard(), "leaver"
    for _ in range(MOST_STEPS):
        listen(running, heard, steps=1)
        if heard[leaver].parts:
            running.leave(leaver)
        running.leave(left)
        enter()
        if not (waiting or running.running):
            break
    assert (running.running, waiting) == (0, []), "the session does not end"
    assert running.promised == 0
    running.close()
    del heard[leaver].parts[1:]
    return {names[key]: one for key, one in heard.items()}


def live(door: Door, seed: int) -> dict[str, Heard]:
    """Text that arrives in fragments."""
    return {
        "parts": door.heard(lambda: door.pipeline.stream(iter(LETTERS), **unlimited(door.model, seed=seed)))
    }


def idle(door: Door, seed: int) -> dict[str, Heard]:
    """Two texts that arrive, and wait for each other, beside one that ends meanwhile."""
    running, source = door.session(3), door.source
    options = unlimited(door.model, seed=seed)
    prompt = options.pop("prompt")
    whole = running.join(door.request(TEXTS[0], seed=seed))
    keys = [running.join(source.live(WAITS[0], options, prompt), more=True) for _ in range(2)]
    heard = {key: Heard() for key in (whole, *keys)}
    for text in WAITS[1:]:
        for key in keys:
            listen(running, heard)  # until both wait
            if running.running == 2:
                running.feed(key, text)
    for key in keys:
        listen(running, heard)
        running.end(key)
    listen(running, heard)
    running.close()
    return dict(zip(("whole", "first", "second"), heard.values(), strict=True))


def reference(door: Door, seed: int) -> dict[str, Heard]:
    voice = SMALL[door.model].voices[-1]
    how = unlimited(door.model, seed=seed, max_seconds=0.5, prompt=voice)
    return {"voice": door.heard(lambda: door.pipeline.stream(SENTENCES, **how))}


def limit(door: Door, seed: int) -> dict[str, Heard]:
    """Of frames, of seconds, and one that a piece of a long text reaches."""
    frames = door.pipeline.generate(TEXTS[0], seed=seed, **given(door.model, max_frames=5))
    how = unlimited(door.model, seed=seed, max_seconds=0.02)
    return {
        "frames": Heard([frames]),
        "seconds": door.heard(lambda: door.pipeline.stream(SENTENCES, **how)),
        "pieces": door.heard(
            lambda: door.pipeline.stream(PAUSED, seed=seed, **given(door.model, max_frames=9))
        ),
    }


def not_a_number(door: Door, seed: int) -> dict[str, Heard]:
    """A row of a table is NaN: who reads it fails, beside others who do not."""
    door = replace(door, poison=True)
    running = door.session(4)
    heard = {running.join(door.request(text, seed=seed + k)): Heard() for k, text in enumerate(TEXTS)}
    listen(running, heard)
    running.close()
    found = {str(place): one for place, one in enumerate(heard.values())}
    assert {one.error is None for one in heard.values()} == {False, True}, "all fail, or none"
    how = given(door.model, seed=seed + [one.error is None for one in heard.values()].index(False))
    text = TEXTS[how["seed"] - seed]
    found["generate"] = door.heard(lambda: iter([door.pipeline.generate(text, **how)]))
    return found


def cancel(door: Door, seed: int) -> dict[str, Heard]:
    """As the first stage begins, and between two parts."""
    event = threading.Event()
    how = given(door.model, seed=seed, **SMALL[door.model].cut)
    begun = door.heard(
        lambda: iter([door.pipeline.generate(SENTENCES, progress=lambda _: event.set(), cancel=event, **how)])
    )
    event.clear()

    def parts() -> Iterator[GenerationResult]:
        spoken = door.pipeline.stream(SENTENCES, cancel=event, **how)
        yield next(spoken)
        event.set()
        yield from spoken

    return {"begun": begun, "later": door.heard(parts)}


def memory(door: Door, seed: int) -> dict[str, Heard]:
    pipeline, how = door.pipeline, given(door.model, seed=seed)
    batched = {key: value for key, value in how.items() if key != "prompt"}
    with free(1000):
        return {
            "load": door.refused(lambda: door.package.load(door.folder, **door.arguments)),
            "generate": door.refused(lambda: pipeline.generate(TEXTS[0], **how)),
            "stream": door.refused(lambda: pipeline.stream(TEXTS[0], **how)),
            "live": door.refused(lambda: list(pipeline.stream(iter(LETTERS), **unlimited(door.model)))),
            "batch": door.refused(
                lambda: pipeline.generate_batch(TEXTS[:2], prompts=[how["prompt"]] * 2, **batched)
            ),
            "session": door.refused(lambda: door.session(4).fits(door.request(TEXTS[0]))),
        }


def errors(door: Door, seed: int) -> dict[str, Heard]:
    """What is refused at the call, and text that cannot be read once it comes."""
    pipeline, how = door.pipeline, given(door.model, seed=seed)
    bad: dict[str, tuple[str, dict[str, Any]]] = {
        "no words": ("... !", {}),
        "ssml": ("<speak>Hello.</speak>", {}),
        "a pause": ("Hello. [pause:soon] You.", {}),
        "name": (TEXTS[0], {"max_fram": 3}),
        "range": (TEXTS[0], {"temperature": -1.0}),
        "type": (TEXTS[0], {"max_frames": 2.5}),
        "seed": (TEXTS[0], {"seed": -1}),
        "prompt": (TEXTS[0], {"prompt": np.zeros((3, 4), np.int32)}),
        "silence": (TEXTS[0], {"prompt": Prompt.of(audio=np.zeros(240_000, np.float32))}),
    }
    found = {
        f"{call} {name}": door.refused(partial(getattr(pipeline, call), text, **{**how, **changes}))
        for name, (text, changes) in bad.items()
        for call in ("generate", "stream")
    }
    parts = ("The inn is near the hide. It is late. ", 'A <prosody rate="1">text</prosody> of SSML.')
    late = unlimited(door.model, seed=seed, max_seconds=0.3)
    found["late"] = door.heard(lambda: pipeline.stream(iter(parts), **late))
    prompts = [how.pop("prompt")] * 3
    for name, changes in {
        "one string": {"texts": TEXTS[0]},
        "empty": {"texts": []},
        "wordless": {"texts": [TEXTS[0], "..."], "prompts": prompts[:2]},
        "seeds": {"texts": TEXTS[:2], "seed": [1], "prompts": prompts[:2]},
        "prompts": {"texts": TEXTS[:2]},
    }.items():
        found[f"batch {name}"] = door.refused(
            partial(pipeline.generate_batch, **{"prompts": prompts, **how, **changes})
        )
    return found


def server(door: Door, seed: int) -> dict[str, Heard]:
    """Requests of several callers at the engine of `serve`; one is cancelled, one names no model."""
    engine = door.engine(places=2)
    how = given(door.model)
    prompt = how.pop("prompt")

    def submit(text: str, model: str = door.model, **changes: Any) -> Any:
        return engine.submit(model, text, options={**how, **changes}, prompt=prompt)

    try:
        cancelled = submit(TEXTS[1], seed=seed)
        cancelled.cancel()
        asked = [submit(text, seed=seed + k) for k, text in enumerate((TEXTS[0], PAUSED, TEXTS[2]))]
        unknown = door.refused(lambda: submit(TEXTS[0], model="other"))
        engine.start()
        heard = [door.heard(partial(iter, one)) for one in (*asked, cancelled)]
    finally:
        engine.close()
    return {str(place): one for place, one in enumerate(heard)} | {"unknown": unknown}


LONG: Mapping[str, Callable[[], Any]] = {
    "dia": lambda: snippet(speech(8.0, 1000), f"[S1] {SENTENCES} {SENTENCES}"),  # as its positions allow
    "dia2": lambda: SMALL["dia2"].voices[-1],
    "mars5": lambda: snippet(speech(11.0, 24_000)),
    "metavoice": lambda: Prompt.of(audio=speech(30.0, 24_000)),
    "qwen3": lambda: Prompt.of(speech(30.0, 24_000), sample_rate=24_000),
}


def long_voice(door: Door, seed: int) -> dict[str, Heard]:
    """A long recording joins eight streams."""
    running = door.session(9)
    heard = {running.join(door.request(TEXTS[k % 4], seed=seed + k)): Heard() for k in range(8)}
    listen(running, heard, steps=3)
    heard[running.join(door.request(TEXTS[0], seed=seed, prompt=LONG[door.model]()))] = Heard()
    listen(running, heard)
    running.close()
    return {str(place): one for place, one in enumerate(heard.values())}


def sixteen(door: Door, seed: int) -> dict[str, Heard]:
    """A Dia text of 16 pieces, whole and with two speakers."""
    text = " ".join(f"[S{1 + k % 2}] {TEXTS[k % 4]}" for k in range(16))
    how = given("dia", max_frames=600, piece_seconds=1.0)
    found = {"whole": Heard([door.pipeline.generate(text, seed=seed, **how)])}
    found["parts"] = door.heard(lambda: door.pipeline.stream(text, seed=seed, **how))
    return found


def bands(door: Door, seed: int) -> dict[str, Heard]:
    """Multi-band batches: a list of texts, then a session in which all wait for their diffusion together."""
    how = {**SMALL["metavoice"].options, **SMALL["metavoice"].cut, "max_frames": 20, "decoder": "mbd"}
    texts = [TEXTS[0], SENTENCES, TEXTS[2]]
    whole = door.pipeline.generate_batch(texts, prompts=FIRST, seed=[seed, seed + 1, seed + 2], **how)
    found = {f"batch {place}": Heard([one]) for place, one in enumerate(whole)}
    running = door.session(3)
    heard = {running.join(door.request(text, seed=seed + k, **how)): Heard() for k, text in enumerate(texts)}
    listen(running, heard)
    running.close()
    return found | {f"session {place}": one for place, one in enumerate(heard.values())}


EVERY: Mapping[str, Scene] = {
    "generate": generate,
    "captions": captions,
    "stream": stream,
    "batch": batch,
    "settings": settings,
    "codes": codes,
    "session": session,
    "live": live,
    "idle": idle,
    "reference": reference,
    "limit": limit,
    "not a number": not_a_number,
    "cancel": cancel,
    "memory": memory,
    "errors": errors,
    "server": server,
    "long voice": long_voice,
}
OWN: Mapping[str, Mapping[str, Scene]] = {"dia": {"sixteen": sixteen}, "metavoice": {"bands": bands}}
SCENES: Mapping[str, Mapping[str, Scene]] = {model: {**EVERY, **OWN.get(model, {})} for model in models.NAMES}
