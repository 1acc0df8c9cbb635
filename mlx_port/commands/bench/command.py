"""Flags of `mlx-port bench`. The modules that measure are imported when it runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from mlx_port.commands.loading_flags import hub_flags
from tts_core import models
from tts_core.command.seconds import Seconds
from tts_core.errors import UsageError
from tts_core.printable import json_text, lines

DTYPES = ("float32", "bfloat16", "float16")
BITS = ("2", "3", "4", "5", "6", "8")
MOST_SECONDS = 60
MOST_TEXTS = 64
SWEPT = "qwen3"  # by --report, if no model is named
ROW_SECONDS = 60  # of a row of --report; loading is not counted
HERE = (
    "random",
    "batch",
    "dtypes",
    "bits",
    "runs",
    "rows",
    "swept",
    "revision",
    "offline",
)  # without --server
THERE = (
    "texts_file",
    "rates",
    "seed",
    "voice",
    "form",
    "sample_rate",
    "body",
    "timeout",
    "api_key",
    "plot_file",
)


class Several(click.ParamType):
    """Values separated by commas, each of one type; a value that is given twice counts once."""

    def __init__(self, item: click.ParamType):
        self.item, self.name = item, f"{item.name},..."

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str | None:
        """Return the type's own metavar, to be repeated."""
        return f"{self.item.get_metavar(param, ctx) or self.item.name.upper()},..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[Any]:
        """Convert a flag's text."""
        values = str(value).split(",")
        return list(dict.fromkeys(self.item.convert(value.strip(), param, ctx) for value in values))


@click.command()
@click.option(
    "--model",
    metavar="MODEL",
    help="Hub id or converted folder; with --server the model's name there.  "
    "[default: the embedded voice; tts-1]",
)
@click.option(
    "--random",
    metavar="NAME",
    help="Instead of a folder: a model of published size with random weights, by its name (dia) or that of "
    "its weights (nari-labs/Dia-1.6B-0626).",
)
@click.option("-t", "--text", help="Text to speak.  [default: one of the model's own]")
@click.option(
    "--seconds",
    type=Seconds(3600),
    help=f"Most seconds of speech, up to {MOST_SECONDS}; with --server, of arrivals at each rate.  "
    "[default: 4; 60]",
)
@click.option("--batch", type=Several(click.IntRange(1, MOST_TEXTS)), default="1", help="Texts in one batch.")
@click.option(
    "--dtype",
    "dtypes",
    type=Several(click.Choice(DTYPES)),
    help="Type of weights and activations.  [default: as in MODEL; with --random bfloat16]",
)
@click.option(
    "--bits",
    type=Several(click.Choice(["16", "32", *BITS])),
    help="Bits per weight: 8 and 4 quantize, 16 and 32 do not.  [default: as in MODEL]",
)
@hub_flags
@click.option("--runs", type=click.IntRange(1, 100), default=3, help="Timed runs.")
@click.option(
    "--report",
    "rows",
    is_flag=True,
    help="Print rows of Markdown to send: every model with random weights, or the one that --model or "
    f"--random names, at 16, 8 and 4 bits (on a CPU as float32), each measured for {ROW_SECONDS} s at most.",
)
@click.option(
    "--sweep",
    "swept",
    is_flag=True,
    help="Time one case under each setting of the environment that may pay on a Mac; --report does it for "
    "Qwen3-TTS at 8 bits, or for the model that it is given.",
)
@click.option(
    "--server",
    metavar="URL",
    help="Instead: load any server with OpenAI's /v1/audio/speech, with requests that arrive at random.",
)
@click.option(
    "--rates",
    type=Several(click.FloatRange(0, 1000, min_open=True)),
    default="1,5,10,20",
    help="Requests a second; stops at the first rate that is too much.",
)
@click.option(
    "--texts",
    "texts_file",
    metavar="FILE",
    help="Texts to ask the server for by turns, one a line; of .jsonl, the field text.",
)
@click.option("--seed", type=click.IntRange(0), default=0, help="Seed of the random arrivals.")
@click.option("--voice", default="alloy", help="Voice to ask the server for.")
@click.option(
    "--format", "form", type=click.Choice(["pcm", "wav"]), default="pcm", help="Format to ask the server for."
)
@click.option(
    "--sample-rate",
    type=click.IntRange(1000, 1_000_000),
    help="Of the server's pcm, in Hz.  [default: what the answer says, else 24000]",
)
@click.option("--body", metavar="JSON", help="Further fields of each request, as '{\"stream\": true}'.")
@click.option(
    "--timeout",
    type=Seconds(3600),
    default=60,
    help="Seconds of one request to the server, after which it counts as an error.",
)
@click.option(
    "--api-key",
    envvar="MLX_PORT_API_KEY",
    help="Key of the server; better in the environment, as MLX_PORT_API_KEY.",
)
@click.option("--plot", "plot_file", metavar="FILE.svg", help="Draw the server's latencies by rate.")
@click.option(
    "--json",
    "json_file",
    metavar="[FILE]",
    is_flag=False,
    flag_value="-",
    help="Print everything as JSON; with FILE, write it there and print the table.",
)
@click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
@click.pass_context
def bench(
    context: click.Context,
    /,
    server: str | None,
    model: str | None,
    text: str | None,
    seconds: float | None,
    json_file: str | None,
    **more: Any,
) -> None:
    """Time a model on this machine (steps, speech, memory), or a server under load.

    Several values of --batch, --dtype and --bits, separated by commas, are timed one after the other. With
    --server: latency, underruns and errors at growing rates.
    """
    for name in THERE if server is None else HERE:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            flag = next(param.opts[0] for param in context.command.params if param.name == name)
            how = "needs --server" if server is None else "does not go with --server"
            raise UsageError(f"{flag.removeprefix('--')}: {how}; leave one of them out")
    chosen = {name: more[name] for name in (HERE if server is None else THERE)}
    from tts_core.audio.files import check_target
    from tts_core.text.checks import check_words

    if text is not None:
        check_words("text", text)
    if json_file not in (None, "-"):
        check_target("json", json_file, [".json"])
    if server is None:
        found, table = _time_model(model, text, seconds or 4, **chosen)
    else:
        from mlx_port.commands.bench.load.command import load_server

        found, table = load_server(
            server, text=text, model=model, seconds=seconds or 60, tell=_tell, **chosen
        )
    if json_file not in (None, "-"):
        Path(json_file).write_text(json_text(found) + "\n", "utf-8")
    click.echo(json_text(found) if json_file == "-" else lines(table))


def _time_model(
    model: str | None,
    text: str | None,
    seconds: float,
    *,
    random: str | None,
    batch: Sequence[int],
    dtypes: Sequence[str] | None,
    bits: Sequence[str] | None,
    runs: int,
    rows: bool,
    swept: bool,
    revision: str | None,
    offline: bool,
) -> tuple[Any, str]:
    """Time a model; return the report as JSON values and as a table.

    rows: instead return a list of reports and rows of Markdown, of all models if none is named.
    swept: instead return a list of reports, one a setting, and their table.
    Raises the last run's error if none succeeded.
    """
    from mlx_port.commands.bench.cases import check_fits, choose_subject, fitting, on_cpu, report_forms
    from mlx_port.commands.bench.measure import Measured, measure
    from mlx_port.commands.bench.report import markdown, report, table
    from mlx_port.commands.bench.sweep import one_case, sweep
    from mlx_port.commands.bench.sweep import table as sweep_table

    if model is not None and random is not None:
        raise UsageError("random: --model is given, too; choose one of them")
    if seconds > MOST_SECONDS:
        raise UsageError(f"seconds: {seconds:g} cannot be used; give a number > 0 and <= {MOST_SECONDS}")
    several = rows and model is None and random is None
    flags = {
        "model": model,
        "random": random,
        "text": text,
        "seconds": seconds,
        "runs": runs,
        "revision": revision,
    }
    flags |= {"dtype": dtypes and dtypes[0], "bits": bits and bits[0], "batch": batch[0]}
    if swept:
        if rows:
            raise UsageError("sweep: --report does it, too; leave one of them out")
        swept_reports = sweep(one_case(flags, offline=offline), _tell)
        return swept_reports, sweep_table(swept_reports)
    names = models.NAMES if several else [random]
    subjects = [choose_subject(model, name, revision=revision, offline=offline) for name in names]
    to_run = []
    for subject in subjects:
        own = rows and bits is None and subject.quantization is None
        forms = report_forms(dtypes) if own else {"dtypes": dtypes, "bits": bits}
        to_run.append((subject, fitting(subject, text, seconds, batch=batch, **forms)))
    check_fits([case for _, cases in to_run for case in cases])
    limit, reports, all_measured = {"seconds": ROW_SECONDS} if rows else {}, [], []
    for subject, cases in to_run:
        if several:
            _tell(f"{subject.published}:")
        measured = measure(subject, cases, runs=runs, tell=_tell, **limit)
        all_measured += measured
        reports.append(report(subject, cases, measured, runs))
    if not any(isinstance(item, Measured) for item in all_measured):
        raise all_measured[-1]
    if rows and not on_cpu():
        flags |= {"runs": 1, "bits": flags["bits"] or "8", "random": SWEPT if several else random}
        reports += [item for item in sweep(one_case(flags, offline=offline), _tell) if item["settings"]]
    return (reports, markdown(reports)) if rows else (reports[0], table(reports[0]))


def _tell(line: str) -> None:
    click.echo(lines(line), err=True)
