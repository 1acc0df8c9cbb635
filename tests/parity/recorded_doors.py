"""Every model through every public door: what it says there must not change, and the command that records it.

    python -m tests.parity.recorded_doors [MODEL...]

It rewrites tests/data/recorded/doors. The networks are those of tests/contract, small and random. A scene is
a function of a `Door` and a seed; it does what a caller may do and returns, by name, what was heard. No scene
depends on the number of steps that a session takes, nor on the order in which neighbors give their parts.

A scene is recorded with the first seed with which MLX and PyTorch, in float32 and in float64, agree on codes,
ends, parts, captions and errors. Samples are some of the float64 run's, beside the bound that
tests.tolerance derives from the float32 run. Numbers of bytes in errors are masked.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from safetensors.numpy import load_file, save_file

from tests.contract.speakers import SENTENCES, SMALL, TEXTS, given, unlimited
from tests.contract.speakers import folder as small_folder
from tests.contract.test_pieces import brief
from tests.parity.recorded_runs import DATA, FIRST, SIDES, speech
from tests.temporary import run_folder
from tests.tiny.recordings import snippet
from tests.tolerance import bound
from tts_core import models
from tts_core.errors import SpeechError
from tts_core.options import options_class
from tts_core.prompt import Prompt
from tts_core.results import GenerationResult, join
from tts_core.serving.engine import SpeechEngine
from tts_core.serving.session import Failed
from tts_core.serving.shelf import Shelf
from tts_core.serving.source import ModelSource

DOORS = DATA / "doors"
STRIDES = {"dia": 13, "qwen3": 13}  # divide no hop length; those of the others, with more samples a frame:
STRIDE = 53
SEEDS = 20  # that recording tries
BYTES = re.compile(r"\d[\d.]* ?[kMG]i?B")
PAUSED = "The inn is near. [pause:0.1] Then it thins out."
LETTERS = ("The i", "nn is near the hide", ". Then it thins ", "out again. There it ends!")
WAITS = ("The inn is near the hide. ", "Then it thins out again. ", "There it ends!")


def folder(model: str) -> Path:
    """The converted networks; those of Qwen3-TTS end their pieces by themselves."""
    return brief() if model == "qwen3" else small_folder(model)


@dataclass
class Heard:
    """What a caller got: parts, then an error if there was one. notes: further facts that stay, as JSON."""

    parts: list[GenerationResult] = field(default_factory=list)
    error: str | None = None
    notes: Any = None

    @property
    def codes(self) -> np.ndarray:
        return np.concatenate([part.codes for part in self.parts], axis=1)

    @property
    def audio(self) -> np.ndarray:
        return np.concatenate([part.audio for part in self.parts])

    def facts(self) -> dict[str, Any]:
        """All but codes and samples, as JSON has it."""
        found: dict[str, Any] = {"error": self.error, "notes": self.notes}
        if self.parts:
            whole = join(self.parts)
            found |= {
                "seed": whole.seed,
                "end": whole.finish_reason,
                "rows": whole.token_count,
                "rate": whole.sample_rate,
                "parts": [[part.samples, part.codes.shape[1]] for part in self.parts],
                "cues": [[*map(rounded, (cue.start, cue.end)), cue.text] for cue in whole.cues],
                "words": [[rounded(word.start), rounded(word.end), word.text] for word in whole.words],
                "pieces": [[p.text, p.seed, p.codes.shape[1], p.finish_reason] for p in whole.pieces],
            }
        return found


Scene = Callable[["Door", int], dict[str, Heard]]


def rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(float(seconds), 5)


def message(error: Exception) -> str:
    """An error with its kind, numbers of bytes masked."""
    return f"{type(error).__name__}: {BYTES.sub('# GB', str(error))}"


@dataclass(frozen=True)
class Door:
    """A model on a side: torch, float64 or mlx. poison: of its weights, as in POISON."""

    model: str
    side: str
    poison: bool = False

    @property
    def folder(self) -> Path:
        return poisoned(self.model) if self.poison else folder(self.model)

    @property
    def arguments(self) -> dict[str, Any]:
        """Of `load`."""
        dtype = "float64" if self.side == "float64" else "float32"
        return {"dtype": dtype, **({} if self.side == "mlx" else {"device": "cpu"})}

    @property
    def package(self) -> Any:
        return import_module(SIDES.get(self.side, "torch_ref"))

    @property
    def pipeline(self) -> Any:
        return loaded(self)

    def request(self, text: str, **changes: Any) -> Any:
        """A checked request."""
        options = given(self.model, **changes)
        prompt = options.pop("prompt")
        return self.pipeline.request(text, options_class(self.model)(**options), prompt)

    def heard(self, parts: Callable[[], Iterator[GenerationResult]]) -> Heard:
        """Listen to a stream to its end or its error."""
        found = Heard()
        try:
            for part in parts():
                found.parts.append(part)
        except SpeechError as error:
            found.error = message(error)
        return found

    def refused(self, call: Callable[[], Any]) -> Heard:
        """The error of a call that must fail."""
        try:
            call()
        except SpeechError as error:
            return Heard(error=message(error))
        raise AssertionError("no error")

    # the two doors of the server that have no public name yet: whatever replaces them is named here

    @property
    def source(self) -> ModelSource:
        """What a server knows of a model before it is loaded."""
        parts = import_module(f"{self.package.__name__}.loading").open_parts(self.folder, **self.arguments)
        return ModelSource(self.model, parts.configs, parts.documents, lambda: self.pipeline)

    def session(self, places: int) -> Any:
        """The session that a server opens."""
        return Shelf({self.model: self.source}, places=places, warm_up=False).open(self.model).session


@cache
def loaded(door: Door) -> Any:
    return door.package.load(door.folder, **door.arguments)


# a row of a table that a code drawn late reads: its numbers are NaN
POISON: Mapping[str, tuple[str, int]] = {
    "dia": ("model.decoder.embeddings.embed.weight", 9),
    "dia2": ("transformer.audio_embeds.0.weight", 9),
    "mars5": ("embed.weight", 918),
    "metavoice": ("transformer.wpe.weight", 28),  # a position that the longer texts reach
    "qwen3": ("talker.model.codec_embedding.weight", 9),
}


@cache
def poisoned(model: str) -> Path:
    made = run_folder("poisoned") / "model"
    shutil.copytree(folder(model), made)
    name, row = POISON[model]
    file = np.memmap(made / "model.safetensors", mode="r+")  # in place, for its size is on record
    header = 8 + int(file[:8].view("<u8")[0])
    entry = json.loads(file[8:header].tobytes())[name]
    assert entry["dtype"] == "F32"
    start, stop = (header + place for place in entry["data_offsets"])
    width = 4 * entry["shape"][-1]
    file[start + row * width : stop][:width] = np.full(entry["shape"][-1], np.nan, "<f4").view(np.uint8)
    file.flush()
    return made


def listen(session: Any, heard: Mapping[int, Heard], *, steps: int | None = None) -> None:
    """Step until nothing runs or all that runs waits for text; or so many steps."""
    while session.running and not session.waiting and steps != 0:
        steps = None if steps is None else steps - 1
        for event in session.step():
            if event.key not in heard:
                continue
            if isinstance(event, Failed):
                heard[event.key].error = message(event.error)
            else:
                heard[event.key].parts.append(event.result)


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
    while waiting or running.running:
        listen(running, heard, steps=1)
        if heard[leaver].parts:
            running.leave(leaver)
        running.leave(left)
        enter()
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


@contextmanager
def free(nbytes: int) -> Iterator[None]:
    """A machine with so little memory. What MLX keeps for the next arrays counts as free: it keeps none."""
    import mlx.core as mx

    limit = mx.set_cache_limit(0)
    mx.clear_cache()
    try:
        with patch("tts_core.memory.computer.free_bytes", lambda: nbytes):
            yield
    finally:
        mx.set_cache_limit(limit)


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
    source = replace(door.source, load=lambda: door.package.load(door.folder, **door.arguments))
    engine = SpeechEngine({door.model: source}, places=2, warm_up=False)
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


def differences(one: Mapping[str, Heard], other: Mapping[str, Heard]) -> list[str]:
    """Names of what differs but in samples; errors may name the side's own remedies."""
    found = [] if one.keys() == other.keys() else ["requests"]
    for name in one.keys() & other.keys():
        mine, theirs = one[name].facts(), other[name].facts()
        found += [f"{name}: {key}" for key in mine if key != "error" and mine[key] != theirs.get(key)]
        if (mine["error"] is None) != (theirs["error"] is None):
            found.append(f"{name}: error")
        if one[name].parts and other[name].parts and not np.array_equal(one[name].codes, other[name].codes):
            found.append(f"{name}: codes")
    return found


def agreed(model: str, name: str) -> tuple[int, Mapping[str, Mapping[str, Heard]]]:
    """The first seed on which all sides agree, with what each of them said."""
    for seed in range(1, SEEDS + 1):
        try:
            said = {side: SCENES[model][name](Door(model, side), seed) for side in ("float64", *SIDES)}
        except AssertionError as error:
            print(f"{model}, {name}, seed {seed}: {error}")
            continue
        differ = [differences(said["float64"], said[side]) for side in SIDES]
        if not any(differ):
            return seed, said
        print(f"{model}, {name}, seed {seed}: {differ}")
    raise AssertionError(f"{model}, {name}: no seed of {SEEDS} on which all sides agree")


def record(model: str, names: Sequence[str] = ()) -> None:
    """Write the two files of a model."""
    facts, tensors = {}, dict[str, np.ndarray]()
    for name in names or SCENES[model]:
        seed, said = agreed(model, name)
        facts[name] = {"seed": seed, "heard": {}}
        for who, truth in said["float64"].items():
            texts = {side: said[side][who].error for side in SIDES}
            error = texts if len({*texts.values()}) > 1 else texts["torch"]
            facts[name]["heard"][who] = {**truth.facts(), "error": error}
            if truth.parts:
                at = f"{name}/{who}"
                oracle = truth.audio.astype(np.float64)
                tensors[f"{at}/codes"] = truth.codes.astype(np.int16, order="C")
                tensors[f"{at}/samples"] = truth.audio[:: stride(model)].astype(np.float32)
                tensors[f"{at}/bound"] = np.array(bound(said["torch"][who].audio, oracle), np.float64)
        print(f"{model}, {name}: seed {seed}, {len(said['float64'])} heard", flush=True)
    DOORS.mkdir(exist_ok=True)
    lines = [f"{json.dumps(name)}: {json.dumps(facts[name], sort_keys=True)}" for name in sorted(facts)]
    (DOORS / f"{model}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    save_file(tensors, DOORS / f"{model}.safetensors")


def stride(model: str) -> int:
    """Distance of the samples that are recorded."""
    return STRIDES.get(model, STRIDE)


@cache
def recorded(model: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The facts of a model's scenes, and its codes, samples and bounds."""
    return json.loads((DOORS / f"{model}.json").read_text()), load_file(DOORS / f"{model}.safetensors")


def main() -> None:
    for model in sys.argv[1:] or models.NAMES:
        record(model)


if __name__ == "__main__":
    os.environ["MLX_ENABLE_TF32"] = "0"  # read when MLX is imported
    with tempfile.TemporaryDirectory() as cache_folder:
        os.environ["XDG_CACHE_HOME"] = cache_folder
        logging.disable(logging.WARNING)
        main()
