"""Options of generation: fields of one frozen dataclass per model, each with its help, range and flag.

The command's flags, the checks of values and the keyword arguments of `generate` all come from these fields.
Neither this module nor a model's `options.py` imports anything heavy: `mlx-port generate --help` reads them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from functools import cache
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, TypedDict, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from tts_core.errors import UsageError, check_names

Options = TypeVar("Options")
_INFO = "option"
LONGEST_SECONDS = 86400  # of one speech, and of a piece
MOST_FRAMES = 10_000_000  # of one speech: more than a day of any codec


@dataclass(frozen=True)
class Info:
    """Facts about an option besides its type and default.

    help: for the flag and for readers.
    flags: names of the command's flag; empty for an option of Python only.
    low, high: inclusive bounds; of a text, `high` is its most characters.
    above: an exclusive lower bound.
    zero_below: a number closer to 0 is taken as 0.
    choices: allowed strings.
    per_text: `generate_batch` also takes one value per text.
    note: ends the message of a wrong value.
    unset: the flag's value for None, if any.
    """

    help: str
    flags: tuple[str, ...] = ()
    low: float = -math.inf
    high: float = math.inf
    above: float = -math.inf
    zero_below: float = 0.0
    choices: tuple[str, ...] = ()
    per_text: bool = False
    note: str = ""
    unset: float | None = None


def option(
    default: Any,
    help: str,
    *others: str,
    flag: str | None = "",
    low: float = -math.inf,
    high: float = math.inf,
    above: float = -math.inf,
    zero_below: float = 0.0,
    choices: Sequence[str] = (),
    per_text: bool = False,
    note: str = "",
    unset: float | None = None,
) -> Any:
    """Define a field of an options dataclass; the other arguments are as in `Info`.

    flag: of the command, by the field's name if empty; None for an option of Python only. others: its further
    names.
    """
    info = Info(
        help,
        () if flag is None else (flag, *others),
        low,
        high,
        above,
        zero_below,
        tuple(choices),
        per_text,
        note,
        unset,
    )
    return field(default=default, metadata={_INFO: info})


def frames_option() -> Any:
    """The field `max_frames`, whose type differs between models."""
    return option(
        None,
        "Stop after this many codec frames of all pieces together.",
        flag=None,
        low=1,
        high=MOST_FRAMES,
        per_text=True,
    )


@cache
def info(field: Field[Any]) -> Info:
    """Return the facts about a field of an options dataclass."""
    known: Info = field.metadata[_INFO]
    return replace(known, flags=tuple(flag or f"--{field.name.replace('_', '-')}" for flag in known.flags))


def options_class(model: str) -> type[Any]:
    """Import a model's options without its other facts: flags of `mlx-port generate` need those of all."""
    match model:
        case "dia":
            from tts_core.dia.options import DiaOptions as Found
        case "dia2":
            from tts_core.dia2.options import Dia2Options as Found
        case "mars5":
            from tts_core.mars5.options import Mars5Options as Found
        case "metavoice":
            from tts_core.metavoice.options import MetaVoiceOptions as Found
        case "qwen3":
            from tts_core.qwen3.options import Qwen3Options as Found
        case _:
            raise KeyError(model)
    return Found


@cache
def types(kind: type) -> dict[str, tuple[Any, ...]]:
    """Return the types that each field of an options dataclass takes, that of one value first."""
    hints = get_type_hints(kind).items()
    return {
        name: get_args(item) if get_origin(item) in (Union, UnionType) else (item,) for name, item in hints
    }


def check(options: Any) -> None:
    """Convert each field's value to its type: int, float, or a tuple of them where it has one value per text.

    Called by `__post_init__` of SharedOptions. Raises UsageError for the first value of the wrong
    type or out of range.
    """
    for own_field in fields(options):
        taken, value = types(type(options))[own_field.name], getattr(options, own_field.name)
        several = info(own_field).per_text and _is_several(value)
        if several and taken[0] not in (int, float):
            continue
        pair = isinstance(value, tuple) and any(get_origin(item) is tuple for item in taken)
        converted = (
            tuple(_converted(own_field, taken, item) for item in value)
            if several or pair
            else _converted(own_field, taken, value)
        )
        object.__setattr__(options, own_field.name, converted)


@dataclass(frozen=True, kw_only=True)
class SharedOptions:
    """Options of every model. Raises UsageError for a value out of range."""

    seed: int | Sequence[int] | None = option(
        None, "The same seed gives the same speech; random by default.", low=0, high=2**64 - 1, per_text=True
    )
    max_seconds: float | None = option(
        None, "Stop after this many seconds of speech.", above=0, high=LONGEST_SECONDS
    )
    speed: float = option(
        1.0,
        "Speed of the speech, its pitch unchanged; pauses given in seconds keep their length.",
        low=0.5,
        high=2,
    )

    def __post_init__(self) -> None:
        check(self)


class SharedChanges(TypedDict, total=False):
    """The fields of SharedOptions as keyword arguments."""

    seed: int | Sequence[int] | None
    """The same seed gives the same speech; random by default."""
    max_seconds: float | None
    """Stop after this many seconds of speech."""
    speed: float
    """Speed of the speech, its pitch unchanged; pauses given in seconds keep their length."""


def changed(options: Options, changes: Mapping[str, Any]) -> Options:
    """Replace some fields of the options. Raises UsageError for an unknown name, with the nearest one."""
    if not changes:
        return options
    check_names(changes, [own_field.name for own_field in fields(cast(Any, options))])
    return replace(cast(Any, options), **changes)


def chosen(kind: type[Options], options: Any, changes: Mapping[str, Any]) -> Options:
    """Take a model's options, its defaults for None, with some fields replaced.

    kind: the model's dataclass. Raises UsageError for anything else, another model's options among it, and as
    `changed`.
    """
    if options is None:
        return changed(kind(), changes)
    if isinstance(options, kind):
        return changed(options, changes)
    if isinstance(options, SharedOptions):
        raise UsageError(
            f"options: {type(options).__name__} are another model's; this model takes {kind.__name__}"
        )
    raise UsageError(f"options: {options!r:.40} is not a model's options; give them by name, as seed=1")


def single_values(kind: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the options of one text that come from JSON, or from flags.

    kind: an options dataclass.  given: by name; a field's `unset` is None. Objects of Python, such as noise,
    are unknown here. Raises UsageError as `check`, for an unknown name, and for several values.
    """
    plain = (bool, int, float, str)
    known = {
        own_field.name: info(own_field)
        for own_field in fields(kind)
        if types(kind)[own_field.name][0] in plain or info(own_field).choices
    }
    check_names(given, known)
    changes = {}
    for name, value in given.items():
        if isinstance(value, list | tuple | dict):
            raise UsageError(f"{name}: give a single value")
        is_unset = known[name].unset is not None and value == known[name].unset
        changes[name] = None if is_unset and not isinstance(value, bool) else value
    converted = changed(kind(), changes)
    return {name: getattr(converted, name) for name in changes}


def _is_several(value: Any) -> bool:
    """True for a sequence or an array of values; a text, or an array without axes, is one."""
    try:
        return not isinstance(value, str) and len(value) >= 0
    except TypeError:
        return False


def _converted(field: Field[Any], taken: tuple[Any, ...], value: Any) -> Any:
    """Convert one value of a field. taken: the field's types."""
    name, kind, known = field.name, taken[0], info(field)
    if value is None:
        if NoneType not in taken:
            raise UsageError(f"{name}: None is not allowed; omit it for the default")
    elif known.choices and (kind not in (int, float) or isinstance(value, str)):
        if not isinstance(value, str) or value not in known.choices:
            raise UsageError(f"{name}: {value!r:.40} is not known; use {' or '.join(known.choices)}")
    elif kind is bool:
        if not isinstance(value, bool):
            raise UsageError(f"{name}: {value!r:.40} is neither True nor False")
    elif kind is str:
        if not isinstance(value, str):
            raise UsageError(f"{name}: {value!r:.40} is not text")
        if len(value) > known.high:
            raise UsageError(f"{name}: {len(value)} characters; give {known.high:.0f} at most")
    elif kind in (int, float):
        return _in_range(name, kind, known, value)
    return value


def _in_range(name: str, number: type[int] | type[float], known: Info, value: Any) -> int | float:
    """Convert a number. Its bounds are compared first: a large whole number does not fit in a float."""
    word = "whole number" if number is int else "number"
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or (number is int and value != value // 1):  # NaN and infinity are not equal to it
        raise UsageError(f"{name}: {value!r:.40} is not a {word}{known.note}")
    size = int(value) if isinstance(value, Integral) else float(value)  # 2**64 - 1 is not exact as a float
    if not (known.low <= size <= known.high and size > known.above):
        opening, least = ("[", known.low) if known.low > known.above else ("(", known.above)
        most = "2**64 - 1" if known.high == 2**64 - 1 else f"{known.high:.10g}"
        raise UsageError(f"{name}: {value!s:.40} is outside {opening}{least:g}, {most}]{known.note}")
    return number(0 if abs(size) < known.zero_below else size)
