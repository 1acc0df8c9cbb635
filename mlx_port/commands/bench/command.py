"""Flags of `mlx-port bench`. The modules that measure are imported when it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from tts_core.command.seconds import Seconds

DTYPES = ("float32", "bfloat16", "float16")
BITS = ("2", "3", "4", "5", "6", "8")
MOST_SECONDS = 60
MOST_TEXTS = 64


class Several(click.ParamType):
    """Values separated by commas, each of one type; a value that is given twice counts once."""

    def __init__(self, each: click.ParamType):
        self.each, self.name = each, f"{each.name},..."

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str | None:
        """Return the type's own metavar, to be repeated."""
        return f"{self.each.get_metavar(param, ctx) or self.each.name.upper()},..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[Any]:
        """Convert a flag's text."""
        values = str(value).split(",")
        return list(dict.fromkeys(self.each.convert(one.strip(), param, ctx) for one in values))


@click.command()
@click.option("--model", metavar="PATH", help="Converted folder.  [default: the embedded voice]")
@click.option(
    "--random",
    metavar="NAME",
    help="Instead of a folder: a model of published size with random weights, by its name (dia) or that of "
    "its weights (nari-labs/Dia-1.6B-0626).",
)
@click.option("-t", "--text", help="Text to speak.  [default: one of the model's own]")
@click.option(
    "--seconds", type=Seconds(MOST_SECONDS), default=4, show_default=True, help="Most seconds of speech."
)
@click.option(
    "--batch",
    type=Several(click.IntRange(1, MOST_TEXTS)),
    default="1",
    show_default=True,
    help="Texts in one batch.",
)
@click.option(
    "--dtype",
    "dtypes",
    type=Several(click.Choice(DTYPES)),
    help="Type of weights and activations.  [default: as in PATH; with --random bfloat16]",
)
@click.option(
    "--bits",
    type=Several(click.Choice(["16", "32", *BITS])),
    help="Bits per weight: 8 and 4 quantize, 16 and 32 do not.  [default: as in PATH]",
)
@click.option("--runs", type=click.IntRange(1, 100), default=3, show_default=True, help="Timed runs.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
def bench(**flags: Any) -> None:
    """Time a model on this machine: steps, speech, memory.

    Several values of --batch, --dtype and --bits, separated by commas, are timed one after the other.
    """
    _run(**flags)


def _run(
    model: str | None,
    random: str | None,
    text: str | None,
    seconds: float,
    batch: Sequence[int],
    dtypes: Sequence[str] | None,
    bits: Sequence[str] | None,
    runs: int,
    as_json: bool,
) -> None:
    from mlx_port.commands.bench.cases import choose_subject, plan
    from mlx_port.commands.bench.report import report, table
    from tts_core.errors import UsageError
    from tts_core.printable import json_text, lines
    from tts_core.text.checks import check_words

    if model is not None and random is not None:
        raise UsageError("random: --model is given, too; choose one of them")
    if text is not None:
        check_words("text", text)
    subject = choose_subject(model, random)
    cases = plan(subject, text, seconds, batch=batch, dtypes=dtypes, bits=bits)

    from mlx_port.commands.bench.measure import measure

    measured = measure(subject, cases, runs=runs, tell=lambda line: click.echo(lines(line), err=True))
    found = report(subject, cases, measured, runs)
    click.echo(json_text(found) if as_json else lines(table(found)))
