"""Flags of the models' options, and a help that shows those of one model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import fields
from typing import Any

import click
from click.core import ParameterSource

from tts_core.errors import FieldError, SpeechError, flag_of
from tts_core.models import NAMES
from tts_core.options import Info, info, options_class, types

PREFIX = "option_"  # of the parameters that are options of a model
_MODEL = "mlx_port.model"  # key of the context's notes


class ModelCommand(click.Command):
    """Command whose --help lists the options of --model's model; without one, those that all models have."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Note the value of --model for the help, which runs before other flags are read."""
        if {*ctx.help_option_names} & {*args}:
            ctx.meta[_MODEL] = self.make_parser(ctx).parse_args(list(args))[0].get("model")
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an error that begins with the name of a given flag names the flag."""
        try:
            return super().invoke(ctx)
        except SpeechError as error:
            source = ctx.get_parameter_source
            given = [param for param in self.params if source(str(param.name)) is ParameterSource.COMMANDLINE]
            name, _, rest = str(error).partition(": ")
            flag = flag_of(name)
            if any(flag in param.opts for param in given) and not isinstance(error, FieldError):
                error.args = (f"{flag}: {rest}",)
            raise

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command's own flags, then the model's options."""
        given = ctx.meta.get(_MODEL)
        name = None if given is None else model_name(given)
        own, options = list[click.Parameter](), list[click.Parameter]()
        for param in self.get_params(ctx):
            is_option = str(param.name).startswith(PREFIX)
            (options if is_option else own).append(param)
        title = "Options of every model"
        if name is None:
            common = set.intersection(*(set(_infos(model)) for model in NAMES))
            options = [param for param in options if option_name(param) in common]
        else:
            title, known = f"Options of {name}", _infos(name)
            options = [_with_help(param, known) for param in options if option_name(param) in known]
        for section, params in (("Options", own), (title, options)):
            with formatter.section(section):
                formatter.write_dl(
                    [row for param in params if (row := param.get_help_record(ctx)) is not None]
                )
        if name is None:
            formatter.write_paragraph()
            formatter.write_text(
                f"Every model has further options: {ctx.command_path} --model MODEL --help lists them, MODEL "
                f"being a folder, or {', '.join(NAMES[:-1])} or {NAMES[-1]}."
            )


def model_name(given: str) -> str:
    """Return the name of the model that --model gives: a model's name, a folder, a file, a published name.

    Raises NotFoundError and CheckpointError as `mlx-port estimate`.
    """
    from pathlib import Path

    from tts_core.files.json_object import read_json

    folder = Path(given).expanduser()
    if given in NAMES and not folder.exists():
        return given
    try:  # of a converted folder, without the modules that read published files
        kind = read_json(folder / "config.json").get("model_type")
    except (SpeechError, OSError):
        kind = None
    if kind in NAMES:
        return str(kind)
    from mlx_port.commands.estimate import read_model

    return read_model(given, None).name


def option_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add a flag for every option of every model; options of the same name share a flag and its type."""
    found: dict[str, tuple[Info, Any, dict[str, list[str]]]] = {}
    for model in NAMES:
        for field in fields(kind := options_class(model)):
            known = info(field)
            if known.flags:
                helps = found.setdefault(field.name, (known, types(kind)[field.name][0], {}))[2]
                helps.setdefault(known.help, []).append(model)
    for name, (known, kind, helps) in reversed(found.items()):
        add = click.option(*known.flags, PREFIX + name, help=_help(helps), **_type(known, kind))
        command = add(command)
    return command


def chosen_options(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Divide a command's flags: the model's options that are given, by name, and all others."""
    options = {
        name.removeprefix(PREFIX): value
        for name, value in given.items()
        if name.startswith(PREFIX) and value is not None
    }
    return options, {name: value for name, value in given.items() if not name.startswith(PREFIX)}


def option_name(param: click.Parameter) -> str:
    """Name of the option that a flag sets."""
    return str(param.name).removeprefix(PREFIX)


def _infos(model: str) -> dict[str, Info]:
    """Facts about the options of a model that have flags, by name."""
    return {field.name: known for field in fields(options_class(model)) if (known := info(field)).flags}


def _with_help(param: click.Parameter, known: Mapping[str, Info]) -> click.Parameter:
    """Copy a flag, with the help of one model."""
    assert isinstance(param, click.Option)
    made = copy(param)
    made.help = known[option_name(param)].help
    return made


def _help(helps: Mapping[str, Sequence[str]]) -> str:
    """Build a flag's help. helps: models by help text."""
    if len(helps) > 1:
        return " ".join(f"{', '.join(models)}: {text}" for text, models in helps.items())
    [(text, models)] = helps.items()
    return text if len(models) == len(NAMES) else f"{text} ({', '.join(models)})"


def _type(known: Info, kind: Any) -> dict[str, Any]:
    """Arguments of `click.option` for an option of this type."""
    if kind is bool:
        return {"is_flag": True, "default": None}
    if kind in (int, float):
        return {"type": kind}
    return {"type": click.Choice(known.choices)} if known.choices else {"metavar": "TEXT"}
