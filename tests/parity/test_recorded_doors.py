"""What every model says through its public doors, on both sides (tests/parity/recorded_doors.py)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.parity.doors import Door, Heard
from tests.parity.recorded_doors import recorded, stride
from tests.parity.scenes import SCENES
from tests.sides import SIDES

REST = ("generate", "settings", "codes", "live", "sixteen", "bands")  # the others are in the default run
CASES = [
    pytest.param(
        side, model, name, marks=[pytest.mark.rest] if name in REST else [], id=f"{model}-{name}-{side}"
    )
    for model, scenes in SCENES.items()
    for name in scenes
    for side in SIDES
]


def assert_heard(model: str, name: str, side: str, heard: dict[str, Heard]) -> None:
    """Require codes, ends, parts, captions and errors exactly, and samples within the recorded bound."""
    facts, tensors = recorded(model)
    known = facts[name]["heard"]
    assert heard.keys() == known.keys()
    for who, one in heard.items():
        expected: dict[str, Any] = dict(known[who])
        if isinstance(expected["error"], dict):  # with the remedies of a side
            expected["error"] = expected["error"][side]
        assert one.facts() == expected, who
        if not one.parts:
            continue
        at = f"{name}/{who}"
        np.testing.assert_array_equal(one.codes, tensors[f"{at}/codes"], err_msg=who)
        step = stride(model)
        error = np.abs(one.audio[::step].astype(np.float64) - tensors[f"{at}/samples"])
        assert error.max(initial=0.0) <= tensors[f"{at}/bound"], f"{who}: sample {step * error.argmax()}"


@pytest.mark.parametrize(("side", "model", "name"), CASES)
def test_a_door_gives_what_is_recorded(side: str, model: str, name: str) -> None:
    seed = recorded(model)[0][name]["seed"]
    assert_heard(model, name, side, SCENES[model][name](Door(model, side), seed))


@pytest.mark.parametrize("model", SCENES)
def test_every_scene_is_recorded(model: str) -> None:
    """And no other. Ends of both kinds, and errors, are among what was heard."""
    facts, tensors = recorded(model)
    assert facts.keys() == SCENES[model].keys()
    heard = {f"{name}/{who}": one for name, scene in facts.items() for who, one in scene["heard"].items()}
    assert {at.rpartition("/")[0] for at in tensors} == {at for at, one in heard.items() if "parts" in one}
    assert {one.get("end") for one in heard.values()} >= {"length", None}
    assert any(one["error"] for one in heard.values())
