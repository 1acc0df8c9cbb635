"""Stand-ins that raise an error in place of a call that runs networks, for every model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from inspect import isfunction
from typing import Any, cast, get_type_hints

import numpy as np
import pytest

from tests.contract.speakers import speaker
from tests.contract.test_beside import late
from tests.hosts import Late


@dataclass(frozen=True)
class Call:
    """A call of an engine, or of something that it owns, such as its slots: a path of names.

    again: makes the same sound where the call lacks memory; it fails, too.
    fed: the text comes in fragments.
    beside: the host overlaps.
    doors: that make it; fed text comes only to the first two.
    options: of the requests that make it.
    """

    path: str
    again: str | None = None
    fed: bool = False
    beside: bool = False
    doors: tuple[str, ...] = ("generate", "serve", "batch")
    options: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        marks = [name for name in ("fed", "beside") if getattr(self, name)]
        return "-".join([self.path, *marks, *map(str, self.options.values())])


TAKE = Call("take", beside=True)  # where a result of the other stream is awaited
SLOTS = {
    "slots": (),  # test_a_running_batch_that_cannot_open
    "slots.join": (Call("slots.join"),),
    "slots.launch": (Call("slots.launch"),),
    "slots.read": (Call("slots.read"),),
}
FAULT = {"fault": (Call("fault"),)}
WHOLE = ("generate", "batch")  # doors that decode a piece as a whole
MBD: Mapping[str, Any] = {"decoder": "mbd"}
# by model and public method of its engine, or of its slots: the calls that stand for it
CALLS: dict[str, dict[str, tuple[Call, ...]]] = {
    "dia": {
        **SLOTS,
        **FAULT,
        "encode": (Call("codec.encode"),),
        "slots.feed": (),  # its texts come whole
        "decode": (Call("decode"),),
        "launch": (Call("launch", again="decode", beside=True), TAKE),
    },
    "dia2": {
        **FAULT,
        "slots": (),
        "slots.join": (Call("slots.join"), Call("slots.join", fed=True)),
        "slots.feed": (),  # its texts come with their inputs
        "slots.launch": (Call("slots.launch"), Call("slots.launch", fed=True)),
        "slots.read": (Call("slots.read"), Call("slots.read", fed=True)),
        "encode": (Call("codec.encode"),),
        "decode": (Call("decode"),),
        "launch": (Call("codec.decode_window"), Call("launch"), Call("launch", beside=True), TAKE),
    },
    "mars5": {
        **SLOTS,
        "encode": (Call("codec.encode"),),
        "slots.feed": (),  # its texts come with their inputs
        "begin": (Call("begin"), Call("timestep")),
        "launch": (Call("launch"), Call("launch", beside=True), TAKE),
        "decode": (),  # launches
    },
    "metavoice": {
        **SLOTS,
        "slots.feed": (),  # its texts come with their inputs
        **FAULT,
        "encode": (),  # a voice is a vector
        "speaker": (Call("speaker_encoder.embed"),),
        "fill": (Call("fill"),),
        "decode": (
            Call("decode"),
            Call("decoders.mbd.codec.latents", options=MBD),
            Call("decoders.mbd.diffusion.decode", options=MBD),
        ),
        "launch": (Call("launch", again="decode", beside=True), TAKE),
    },
    "qwen3": {
        **SLOTS,
        **FAULT,
        "slots.feed": (Call("slots.feed", fed=True),),
        "vector": (Call("network.speaker_encoder.embed"),),
        "encode": (Call("codec.encode"),),
        "launch": (
            Call("codec.decode_window"),
            Call("launch"),
            Call("launch", fed=True),
            Call("launch", beside=True),
            Call("launch", fed=True, beside=True),
            Call("codec.decode", doors=WHOLE),
            TAKE,
        ),
        "decode": (Call("decode"),),
    },
}
# which run no network, or as test_a_warm_up_that_fails says
WITHOUT = {"slots.leave", "prepare", "split", "fit", "check", "together"}
WITHOUT |= {"is_late", "longest", "windows", "open", "voice", "memory", "admission", "silence", "most_rows"}
WITHOUT |= {"streamed", "check_beside", "slots.prepare"}
EVERY = [(model, call) for model, methods in CALLS.items() for calls in methods.values() for call in calls]
ENCODE = ("codec.encode", "speaker_encoder.embed", "network.speaker_encoder.embed")


def public_methods(model: str) -> set[str]:
    """Names of the public methods of a model's engine, and of its slots after "slots."."""
    engine = type(speaker(model, "torch").engine)
    slots = get_type_hints(engine.slots)["return"]
    return {*_public(engine), *(f"slots.{name}" for name in _public(slots))}


def _public(kind: type) -> set[str]:
    found = [(name, value) for each in kind.__mro__ for name, value in vars(each).items()]
    return {name for name, value in found if isfunction(value) and not name.startswith("_")}


class Standing:
    """A call that raises an error while there is one. calls: how often.  passes: so many calls before."""

    def __init__(self, call: Callable[..., Any]):
        self.call, self.error, self.calls, self.passes = call, cast(Exception | None, None), 0, 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        if self.error is not None and self.calls > self.passes:
            raise self.error
        return self.call(*args, **kwargs)


def stand_in(model: str, side: str, call: Call, patch: pytest.MonkeyPatch) -> Standing:
    """Put a stand-in in the place of one of the engine's calls, its slots' included."""
    engine = speaker(model, side).engine
    if call.beside:
        late(model, patch)
    if call.path == "take":
        standing = Standing(Late.take)
        patch.setattr(Late, "take", lambda result: standing(result))
        return standing
    if call.path == "timestep":
        standing, begin = Standing(lambda: None), engine.begin

        def begun(*args: Any) -> Any:
            run = begin(*args)
            standing.call, run.step = run.step, standing
            return run

        patch.setattr(engine, "begin", begun)
        return standing
    if call.path.startswith("slots."):
        return _in_slots(engine, call.path.removeprefix("slots."), patch)
    *path, name = call.path.split(".")
    owner = reduce(_part, path, engine)
    standing = Standing(getattr(owner, name))
    patch.setattr(owner, name, standing)
    if call.again is not None:
        decode = getattr(engine, call.again)

        def again(*args: Any, **kwargs: Any) -> Any:
            if standing.error is not None:
                raise standing.error
            return decode(*args, **kwargs)

        patch.setattr(engine, call.again, again)
    if call.path == "fault":
        _break_logits(engine, standing, patch)
    return standing


def _part(owner: Any, name: str) -> Any:
    return owner[name] if type(owner) is dict else getattr(owner, name)


def _in_slots(engine: Any, name: str, patch: pytest.MonkeyPatch) -> Standing:
    standing, opened = Standing(lambda: None), engine.slots

    def slots(*args: Any, **kwargs: Any) -> Any:
        made = opened(*args, **kwargs)
        standing.call = getattr(made, name)
        setattr(made, name, standing)
        return made

    patch.setattr(engine, "slots", slots)
    return standing


def _break_logits(engine: Any, standing: Standing, patch: pytest.MonkeyPatch) -> None:
    """Let logits not be finite while the stand-in has an error."""
    opened = engine.slots

    def slots(*args: Any, **kwargs: Any) -> Any:
        made = opened(*args, **kwargs)
        read = made.read

        def broken(launched: Any) -> Any:
            found = read(launched)
            if standing.error is None:
                return found
            if isinstance(found, Mapping):
                return {slot: np.full_like(codes, -1) for slot, codes in found.items()}
            return np.full_like(found, -1)

        made.read = broken
        return made

    patch.setattr(engine, "slots", slots)
