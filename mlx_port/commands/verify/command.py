"""Flags of `mlx-port verify`. The modules that measure are imported when it runs."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from tts_core import models
from tts_core.command.seconds import Seconds
from tts_core.errors import CheckpointError, NotFoundError, SpeechError, UsageError
from tts_core.extras import install
from tts_core.printable import json_text, lines, one_line

if TYPE_CHECKING:
    from converters.published import Published
    from mlx_port.commands.verify.ports import PortReport
    from mlx_port.commands.verify.report import Report


@click.command()
@click.argument("sources", metavar="SRC...", nargs=-1)
@click.argument("destination", metavar="DST", required=False)
@click.option(
    "--codec", metavar="SRC", help="Codec that DST was converted with.  [default: in SRC, or from the hub]"
)
@click.option("--rows", type=click.IntRange(min=2), default=24, help="Rows for the decoders to read.")
@click.option(
    "--seconds", type=Seconds(30), default=0.25, help="Seconds of sound for the codec to encode and decode."
)
@click.option("--seed", type=click.IntRange(0, 2**64 - 1), default=0, help="Seed of the inputs.")
@click.option(
    "--cross-rope/--no-cross-rope",
    default=None,
    help="As given to convert-weights.  [default: by config.json's schema]",
)
@click.option("--config", metavar="FILE", help="As given to convert-weights.")
@click.option("--revision", metavar="REV", help="Branch, tag or commit of hub ids in SRC.")
@click.option("--offline", is_flag=True, help="Use the hub's cache only; download nothing.")
@click.option(
    "--with",
    "port",
    metavar="PORT",
    help="Compare this program's port instead, on one published folder that both can load. See docs/use.",
)
@click.option("--verbose", is_flag=True, help="Print a line for each layer.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("--html", "page", metavar="FILE", help="Also write an HTML page with plots.")
@click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
@click.pass_context
def verify(context: click.Context, **flags: Any) -> None:
    """Compare a published checkpoint SRC with its converted copy DST, layer by layer.

    Every part of the model in DST is compared; give several SRC if the parts are in several places.
    Each layer of DST runs in MLX and in PyTorch, in float64 and float32, one layer at a time.
    Exits with 1 if an error exceeds what rounding explains, or a tensor differs from that of SRC. The model
    card of DST gets the summary.

    verify --with mlx-audio FOLDER compares another program with the original, on the checkpoint in FOLDER.
    """
    if not flags["destination"] or (flags["port"] is None and not flags["sources"]):
        raise click.MissingParameter(ctx=context, param=context.command.params[0])
    if not (_run(**flags) if _exact() else _in_child(flags)):
        context.exit(1)


def _run(
    sources: tuple[str, ...],
    destination: str,
    port: str | None,
    page: str | None,
    verbose: bool,
    as_json: bool,
    rows: int,
    seconds: float,
    seed: int,
    **how: Any,
) -> bool:
    """Compare, and print the report. how: arguments of open_published, of which ports take all but config."""
    if port is not None:
        if sources or page or how.pop("config"):
            raise UsageError("--with: takes one FOLDER, and neither SRC, --config nor --html; omit them")
        compared = _run_port(port, destination, how, rows, seconds, seed)
        _print(compared.to_dict(), "\n".join(compared.lines(verbose=verbose)), as_json=as_json)
        return compared.passed
    started = time.perf_counter()
    if page is not None:
        _check_page(page)
    environment = {"TF32": "off"} | _frameworks()

    from converters.published import open_published
    from mlx_port import watch
    from mlx_port.commands.verify import html, run
    from mlx_port.commands.verify.report import Report
    from torch_ref import watch as torch_watch

    converted = _converted(destination)
    parts = list(converted.parts)
    published = open_published(sources, parts=parts, flag="SRC", **how)
    root = next(part for kind, part in converted.parts.items() if kind in models.NAMES)
    report = Report(
        ", ".join(sources), destination, root.dtype, root.quantization, rows, seconds, seed, environment
    )
    try:
        _show("hashes")
        report.changed += _changed(destination, parts)
        run.verify(published, converted, torch_watch.unloaded, watch.unloaded, report, progress=_show)
    finally:
        _show("")
    report.seconds_taken = time.perf_counter() - started
    report.peak_memory_bytes = _peak_bytes()
    _print(report.to_dict(), report.details() if verbose else report.text(), as_json=as_json)
    if page is not None:
        Path(page).write_text(html.page(report), "utf-8")
    _note_in_card(report, destination)
    return report.passed


def _run_port(
    port: str, folder: str, how: dict[str, Any], rows: int, seconds: float, seed: int
) -> PortReport:
    """Compare another program's port; how: arguments of torch_ref's loading."""
    if not Path(folder).expanduser().is_dir():
        raise NotFoundError(f"FOLDER: {folder} is not a folder here; fetch the checkpoint first")
    environment = {"TF32": "off"} | _frameworks()

    from mlx_port.commands.verify import ports
    from torch_ref.loading import open_parts
    from tts_core.nn.probe import InputSources, probes

    parts = [open_parts(folder, dtype=dtype, device="cpu", **how) for dtype in ("float64", "float32")]
    adapter = ports.open_port(port, str(parts[0].model))
    given = InputSources(parts[0].configs, parts[0].documents, rows, seconds, seed)
    listed = [
        replace(probe, part=name, half="")
        for probe in sorted(probes(str(parts[0].model), given), key=lambda probe: probe.part == "codec")
        for name in adapter.calls
        if name == probe.name or name.startswith(f"{probe.name}, ")
    ]
    codec = None if how["codec"] is None else Path(how["codec"]).expanduser()
    report = ports.PortReport(folder, ports.named_version(adapter), environment)
    with redirect_stdout(sys.stderr):  # what the port prints is no part of the report
        try:
            model = adapter.load(Path(folder).expanduser(), codec)
        except Exception as error:
            raise CheckpointError(
                f"--with: the port cannot load {folder}: {type(error).__name__}: {error}; "
                "give a checkpoint in a layout that it reads"
            ) from error
        for kind in dict.fromkeys(probe.kind for probe in listed):
            oracle, yardstick = (cast(Any, part.network(kind)).requires_grad_(False) for part in parts)
            for probe in (item for item in listed if item.kind == kind):
                report.rows += ports.compare(probe, adapter, model, oracle, yardstick)
    return report


def _print(found: dict[str, Any], text: str, *, as_json: bool) -> None:
    click.echo(json_text(found) if as_json else lines(text))


def _note_in_card(report: Report, destination: str) -> None:
    """Add the summary to the model card of DST; one that cannot be written stays."""
    from converters.card import add_measurements

    try:
        add_measurements(Path(destination).expanduser(), report.summary())
    except (OSError, SpeechError) as error:
        click.echo(one_line(f"{destination}: its model card was not changed ({error})"), err=True)


def _converted(destination: str) -> Published:
    """Open DST. Raises UsageError unless convert-weights, or another program with MLX, wrote it."""
    from converters.published import is_conversion, open_published
    from mlx_port.loading import open_parts
    from tts_core.files.json_object import read_json

    folder = Path(destination).expanduser()
    config = read_json(folder / "config.json") if os.path.lexists(folder / "config.json") else {}
    if folder.is_dir() and config.get("weights_layout") != "mlx" and not is_conversion(folder):
        raise UsageError(
            f"DST: {destination} is not a converted model; give the folder that convert-weights wrote"
        )
    if folder.is_dir():
        open_parts(folder)  # gives the same errors as loading for missing or broken files
    return open_published(destination, offline=True, flag="DST")


def _changed(destination: str, kinds: Sequence[str]) -> list[str]:
    """Files that are not as the conversion wrote them, by their hashes; none in a folder without a record.

    Not config.json: its entries are compared with the source's; the default sampling may be the user's own.
    """
    from tts_core.files.record import RECORD, Record

    folder = Path(destination).expanduser()
    if not (folder / RECORD).exists():
        return []
    changed = Record.read(folder).changed([models.network(kind).folder_in(folder) for kind in kinds])
    return [name for name in changed if not name.endswith("config.json")]


def _check_page(page: str) -> None:
    from tts_core.files.regular import irregular

    folder = Path(page).absolute().parent
    if not folder.is_dir() or Path(page).is_dir() or not os.access(folder, os.W_OK):
        raise NotFoundError(f"--html: {page}: its folder is missing or not writable; choose another")
    if os.path.lexists(page) and (kind := irregular(os.lstat(page).st_mode)):
        raise UsageError(f"--html: {page}: {kind}; give the name of a file")


def _exact() -> bool:
    """Return True if MLX will read here that TF32 is off: False where it may have read the variable before,
    whatever it says now.
    """
    from mlx_port.runtime.arithmetic import VARIABLE

    return "mlx.core" not in sys.modules and os.environ.get(VARIABLE) == "0"


def _in_child(flags: dict[str, Any]) -> bool:
    """Compare in a process of its own, which reads the variable anew. Raises its error."""
    from multiprocessing import get_context

    from mlx_port.runtime.arithmetic import VARIABLE

    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = "0"
    try:
        with get_context("spawn").Pool(1) as pool:
            return pool.apply(_run, kwds=flags)
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before


def _frameworks() -> dict[str, str]:
    """Versions of both frameworks. Raises NotFoundError if one is not installed."""
    try:
        import mlx.core as mx
    except ImportError:
        raise NotFoundError(f"verify: MLX is not installed; {install('cpu')} (also cuda12, cuda13)") from None
    from importlib.metadata import version

    if find_spec("torch") is None:
        raise NotFoundError(f"verify: PyTorch is not installed; {install('torch')}")
    device = mx.default_device().type.name
    return {"mlx": f"{version('mlx')} ({device})", "torch": f"{version('torch')} (cpu)"}


def _show(text: str) -> None:
    """Replace the line of progress on stderr, if that is a terminal."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{one_line(text)}", nl=False, err=True)


def _peak_bytes() -> int:
    """Peak memory of this process, including MLX's memory on an Apple GPU."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
