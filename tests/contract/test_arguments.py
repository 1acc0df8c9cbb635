"""Arguments that no model can use: one clear line each, before any network runs."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from tests.contract.speakers import SMALL, every_model, every_side, folder, given, speaker
from tests.sides import SIDES
from tts_core.errors import UsageError
from tts_core.options import options_class

TEXT = "The inn is near."
Ask = Callable[[Any, dict[str, Any]], Any]
BAD: list[tuple[Ask, str]] = [
    (lambda pipeline, own: pipeline.generate(5, **own), "text: 5 is not text"),
    (lambda pipeline, own: pipeline.generate(b"Hi", **own), "text: b'Hi' is not text"),
    (lambda pipeline, own: pipeline.generate(None, **own), "text: None is not text"),
    (lambda pipeline, own: pipeline.stream(5, **own), "text: 5 is neither text nor an iterable"),
    (lambda pipeline, own: pipeline.generate_batch([TEXT, 5], **several(own)), "5 is not text"),
    (
        lambda pipeline, own: pipeline.generate(TEXT, **{**own, "options": {"seed": 1}}),
        "options: {'seed': 1} ",
    ),
    (lambda pipeline, own: pipeline.generate(TEXT, options=5), "options: 5 "),
    (lambda pipeline, own: pipeline.generate(TEXT, options={}), "options: {} "),
    (lambda pipeline, own: pipeline.generate(TEXT, **own, seed=np.array(3)), "seed: array(3) is not a whole"),
    (lambda pipeline, own: pipeline.session(0), "places: 0 "),
    (lambda pipeline, own: pipeline.session(-1), "places: -1 "),
    (lambda pipeline, own: pipeline.session(1.5), "places: 1.5 "),
]


def several(own: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a batch."""
    changed = dict(own)
    return {"prompts": [changed.pop("prompt")] * 2, **changed}


@every_model
@every_side
def test_options_of_another_model_are_named(model: str, side: str) -> None:
    """In every call that takes options."""
    other = options_class("mars5" if model == "dia" else "dia")()
    pipeline = speaker(model, side)
    message = f"options: {type(other).__name__} are another model's; this model takes"
    for call in (pipeline.generate, pipeline.stream, pipeline.generate_codes):
        with pytest.raises(UsageError, match=message):
            call(TEXT, options=other)
    with pytest.raises(UsageError, match=message):
        pipeline.generate_batch([TEXT], options=other)


@every_model
def test_arguments_of_the_wrong_kind_are_named(model: str) -> None:
    for ask, message in BAD:
        with pytest.raises(UsageError) as caught:
            ask(speaker(model, "torch"), given(model))
        assert message in str(caught.value)


READERS = {"mlx": ("mlx_port.loading", "read_tensors"), "torch": ("torch_ref.loading", "tensor")}


@every_model
@every_side
def test_a_folders_options_are_refused_before_a_weight_is_read(
    model: str, side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its configuration names the model. The same call without the mistake reads."""
    module, name = READERS[side]
    reads, read = [], getattr(import_module(module), name)
    monkeypatch.setattr(f"{module}.{name}", lambda given: [reads.append(1), read(given)][1])
    package, other = import_module(SIDES[side]), options_class("mars5" if model == "dia" else "dia")()
    for call in (package.generate, package.stream):
        for wrong in ({"options": other}, {"seeed": 1}, {"seed": -1}):
            with pytest.raises(UsageError, match=r"options: |did you mean seed|seed: -1"):
                call(TEXT, folder(model), **wrong)
    assert not reads
    with pytest.raises(UsageError, match="text: "):
        package.generate("", folder(model), prompt=SMALL[model].voices[0])
    assert reads
