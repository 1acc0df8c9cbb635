"""Options of every model: their keyword arguments, their ranges, their flags."""

from dataclasses import MISSING, fields
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import tts_core
from tts_core.errors import UsageError
from tts_core.options import changed, check, info, option, options_class

MODELS = sorted(path.parent.name for path in Path(tts_core.__file__).parent.glob("*/options.py"))


@pytest.mark.parametrize("model", MODELS)
def test_keyword_arguments_are_the_fields(model: str) -> None:
    kind = options_class(model)
    module = import_module(kind.__module__)
    changes = getattr(module, kind.__name__.replace("Options", "Changes"))
    assert not changes.__required_keys__
    written = {name: value.__forward_arg__ for name, value in changes.__annotations__.items()}
    assert written == {field.name: field.type for field in fields(kind)}


@pytest.mark.parametrize("model", MODELS)
def test_defaults_are_in_range_and_every_option_has_help(model: str) -> None:
    kind = options_class(model)
    kind()
    for field in fields(kind):
        assert info(field).help.endswith("."), field.name
        assert field.default is not MISSING, field.name


@pytest.mark.parametrize("model", MODELS)
def test_a_range_is_checked_at_its_bounds(model: str) -> None:
    kind = options_class(model)
    for field in fields(kind):
        known, step = info(field), 1 if str(field.type).startswith("int") else 1e-9
        if known.low > float("-inf"):
            changed(kind(), {field.name: type(step)(known.low)})
            with pytest.raises(UsageError, match=f"^{field.name}: "):
                changed(kind(), {field.name: known.low - step})
        if known.above > float("-inf"):
            with pytest.raises(UsageError, match=f"^{field.name}: "):
                changed(kind(), {field.name: known.above})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"temperature": "hot"}, "temperature: 'hot' is not a number (0 is greedy)"),
        ({"temperature": True}, "temperature: True is not a number (0 is greedy)"),
        ({"top_k": 1.5}, "top_k: 1.5 is not a whole number >= 0 (0 keeps every id)"),
        ({"piece_seconds": "none"}, "piece_seconds: 'none' is not known; use auto"),
        ({"last_channel_free": 1}, "last_channel_free: 1 is neither True nor False"),
        ({"sed": 1}, "sed: the model's generate takes no such argument; did you mean seed?"),
        ({"max_frames": [3, 0]}, "max_frames: 0 is not a whole number >= 1"),
    ],
)
def test_messages(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        changed(options_class("dia")(), changes)
    assert str(caught.value) == message


def test_none_is_a_value_only_where_the_type_says_so() -> None:
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class Options:
        steps: "int" = option(3, "Steps.", low=1)

        def __post_init__(self) -> None:
            check(self)

    assert changed(Options(), {"steps": 4}) == Options(4)
    with pytest.raises(UsageError, match=r"^steps: None is not allowed"):
        Options(None)  # type: ignore[arg-type]
