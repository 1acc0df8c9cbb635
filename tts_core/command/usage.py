"""Usage errors of the commands in one line: the flag, what was wrong, what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import SequenceMatcher

import click
from click.types import FloatParamType, IntParamType

from tts_core.errors import did_you_mean

QUOTES = "'\""
_PATH = re.compile(
    r"(?:File|Directory|Path) (.+) (does not exist|is a file|is a directory|is not \w+)\.", re.DOTALL
)


def usage_line(fault: click.ClickException) -> str:
    """Return the message of a usage error; those that click words itself are reworded."""
    help_command = "" if not isinstance(fault, click.UsageError) or fault.ctx is None else _help_of(fault.ctx)
    if isinstance(fault, click.NoSuchOption):
        similar = None if fault.ctx is None else nearest_flag(fault.option_name, _all_flags(fault.ctx))
        return f"{fault.option_name}: no such flag; {f'did you mean {similar}?' if similar else help_command}"
    if isinstance(fault, click.MissingParameter) and fault.param is not None:
        return f"{_label(fault.param)}: missing; {help_command}"
    if isinstance(fault, click.BadParameter) and fault.param is not None:
        return _wrong_value(fault.message, fault.param)
    if isinstance(fault, click.BadOptionUsage):
        takes_none = "does not take" in fault.message
        return (
            f"{fault.option_name}: {'takes no value; leave it out' if takes_none else 'its value is missing'}"
        )
    message = fault.format_message()
    if message.startswith("Got unexpected extra argument"):
        words = message.partition("(")[2].rstrip(")")
        return f"{words}: without a flag; {help_command}"
    if (
        message.startswith("No such command ")
        and isinstance(fault, click.UsageError)
        and fault.ctx is not None
    ):
        return _no_command(message.removeprefix("No such command ").partition(". ")[0], fault.ctx)
    return message


def nearest_flag(name: str, flags: Iterable[str]) -> str | None:
    """Return the flag most like a mistyped one: one with the same first word, else by letters; or None."""

    def likeness(flag: str) -> float:
        return SequenceMatcher(None, name.strip("-"), flag.strip("-")).ratio()

    name = name.replace("_", "-")
    flags = [flag for flag in flags if flag.startswith("--")]
    first = name.strip("-").partition("-")[0]
    family = [flag for flag in flags if flag.strip("-").partition("-")[0] == first]
    best = max(family or flags, key=likeness, default=None) if name.startswith("--") else None
    return best if best is not None and (family or likeness(best) >= 0.6) else None


def _no_command(name: str, context: click.Context) -> str:
    group = context.command
    names = group.list_commands(context) if isinstance(group, click.Group) else []
    name = name.rstrip(".").strip(QUOTES)
    hint = did_you_mean(name, names) or f"choose one of {', '.join(names)}"
    return f"{name}: no such command; {hint}"


def _all_flags(context: click.Context) -> list[str]:
    own = [flag for param in context.command.params for flag in (*param.opts, *param.secondary_opts)]
    return [*own, *context.help_option_names]


def _help_of(context: click.Context) -> str:
    return f"see {context.command_path} --help"


def _wrong_value(message: str, param: click.Parameter) -> str:
    """Word the error for a value that a flag's type refuses. message: click's."""
    wrong = _PATH.fullmatch(message)
    if wrong is not None and isinstance(param.type, click.Path):
        fault = "is not there" if wrong[2] == "does not exist" else wrong[2]
        instead = "folder" if not param.type.file_okay else "file" if not param.type.dir_okay else "path"
        return f"{_label(param)}: {wrong[1].strip(QUOTES)} {fault}; give another {instead}"
    value, found, _ = message.partition(" is not ")  # as click's own types word it
    expected = _expected(param.type)
    if not found or expected is None:
        return f"{_label(param)}: {message.rstrip('.')}"
    return f"{_label(param)}: {value} cannot be used; {expected}"


def _expected(kind: click.ParamType) -> str | None:
    """Describe the values that a type takes; None for a type that is not described here."""
    if isinstance(kind, click.Choice):
        return f"choose from {', '.join(map(str, kind.choices))}"
    if not isinstance(kind, IntParamType | FloatParamType):
        return None
    number = "a whole number" if isinstance(kind, IntParamType) else "a number"
    bounds = []
    if isinstance(kind, click.IntRange | click.FloatRange):
        bounds += [] if kind.min is None else [f"{'>' if kind.min_open else '>='} {kind.min}"]
        bounds += [] if kind.max is None else [f"{'<' if kind.max_open else '<='} {kind.max}"]
    return " ".join(["give", number, " and ".join(bounds)]).rstrip()


def _label(param: click.Parameter) -> str:
    """Name a flag by its longest spelling, an argument by its name in the usage line."""
    return (
        max(param.opts, key=len)
        if isinstance(param, click.Option)
        else str(param.metavar or param.name).upper()
    )
