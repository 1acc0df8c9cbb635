"""Options of generation: fields of one frozen dataclass per model, each with its help, range and flag.

The command's flags, the checks of values and the keyword arguments of `generate` all come from these fields.
Neither this module nor a model's `options.py` imports anything heavy: `mlx-port generate --help` reads them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, is_dataclass, replace
from importlib import import_module
from numbers import Integral, Real
from typing import Any, TypeVar, cast

from tts_core.errors import UsageError, check_names

Options = TypeVar("Options")
_INFO = "option"


@dataclass(frozen=True)
class Info:
    """Facts about an option besides its type and default.

    help: for the flag and for readers.  flags: of the command; empty for an option of Python only.
    low, high: inclusive bounds.  above: an exclusive lower bound.  choices: allowed strings.
    per_text: `generate_batch` also takes one value per text.  note: ends the message of a wrong value.
    unset: the flag's value for None, if any.
    """

    help: str
    flags: tuple[str, ...] = ()
    low: float = -math.inf
    high: float = math.inf
    above: float = -math.inf
    choices: tuple[str, ...] = ()
    per_text: bool = False
    note: str = ""
    unset: float | None = None


def option(
    default: Any,
    help: str,
    *flags: str,
    low: float = -math.inf,
    high: float = math.inf,
    above: float = -math.inf,
    choices: Sequence[str] = (),
    per_text: bool = False,
    note: str = "",
    unset: float | None = None,
) -> Any:
    """Define a field of an options dataclass; arguments as in `Info`."""
    info = Info(help, flags, low, high, above, tuple(choices), per_text, note, unset)
    return field(default=default, metadata={_INFO: info})


def speed_option() -> Any:
    """The field `speed` of every model's options."""
    return option(
        1.0,
        "Speed of the speech, its pitch unchanged; pauses given in seconds keep their length.",
        "--speed",
        low=0.5,
        high=2,
    )


def info(one: Field[Any]) -> Info:
    """Return the facts about a field of an options dataclass."""
    return one.metadata[_INFO]


def options_class(model: str) -> Any:
    """Import a model's options dataclass, the one in `tts_core.<model>.options`."""
    module = import_module(f"tts_core.{model}.options")
    [found] = [
        value
        for value in vars(module).values()
        if is_dataclass(value) and isinstance(value, type) and value.__module__ == module.__name__
    ]
    return found


def check(options: Any) -> None:
    """Raise UsageError for the first field whose value has the wrong type or is out of range.

    Called by `__post_init__` of every options dataclass.
    """
    for one in fields(options):
        known, value = info(one), getattr(options, one.name)
        several = known.per_text and not isinstance(value, str) and hasattr(value, "__len__")
        for each in value if several else [value]:
            _check(one.name, str(one.type), known, each)


def changed(options: Options, changes: Mapping[str, Any]) -> Options:
    """Replace some fields of the options. Raises UsageError for an unknown name, with the nearest one."""
    if not changes:
        return options
    check_names(changes, [one.name for one in fields(cast(Any, options))])
    return replace(cast(Any, options), **changes)


def _check(name: str, kind: str, known: Info, value: Any) -> None:
    if value is None:
        if "None" not in kind:
            raise UsageError(f"{name}: None is not allowed; omit it for the default")
        return
    if isinstance(value, str) and known.choices:
        if value not in known.choices:
            raise UsageError(f"{name}: {value!r} is not known; use {' or '.join(known.choices)}")
        return
    if kind.startswith("bool") and not isinstance(value, bool):
        raise UsageError(f"{name}: {value!r} is neither True nor False")
    if not kind.startswith(("int", "float")) or isinstance(value, tuple):
        return
    number = "whole number" if kind.startswith("int") else "number"
    if not isinstance(value, Real) or isinstance(value, bool):
        raise UsageError(f"{name}: {value!r} is not a {number}{known.note}")
    if number == "whole number" and not isinstance(value, Integral) and known.high < math.inf:
        raise UsageError(f"{name}: {value} is not a {number}{known.note}")
    size = int(value) if isinstance(value, Integral) else float(value)  # 2**64 - 1 is not exact as a float
    fits = known.low <= size <= known.high and size > known.above and not math.isinf(size)
    if not fits or (number == "whole number" and not isinstance(value, Integral)):
        raise UsageError(f"{name}: {value} is {_expected(known, number)}{known.note}")


def _expected(known: Info, number: str) -> str:
    if known.high < math.inf:
        opening, least = ("[", known.low) if known.low > known.above else ("(", known.above)
        return f"outside {opening}{least:g}, {_written(known.high)}]"
    if known.low == known.above:  # neither is set
        return f"not a {number}"
    return (
        f"not a {number} >= {known.low:g}" if known.low > known.above else f"not a {number} > {known.above:g}"
    )


def _written(number: float) -> str:
    return "2**64 - 1" if number == 2**64 - 1 else f"{number:g}"
