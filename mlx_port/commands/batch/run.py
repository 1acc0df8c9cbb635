"""Work of `mlx-port batch`: read rows, leave out what is done, speak, write, report."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click

from mlx_port.commands.batch.flags import BatchFlags
from mlx_port.commands.batch.local import devices, speak_locally
from mlx_port.commands.batch.worker import Setting, build_speaker
from mlx_port.commands.display import duration
from mlx_port.commands.opening import (
    check_backend,
    check_options,
    choose_options,
    load_pipeline,
    on_this_machine,
    open_model,
)
from mlx_port.commands.pace import speed
from tts_core.audio.formats.names import CORPUS, FORMATS
from tts_core.bulk.folder import OutputFolder
from tts_core.bulk.keys import model_hash, row_key, seeded
from tts_core.bulk.outcome import Outcome
from tts_core.bulk.rejection import Condition, Rejection
from tts_core.bulk.requests import BulkWork, RowRequests
from tts_core.bulk.rows import Input, TextRow, read_rows
from tts_core.errors import GenerationError, ResourceError, UsageError, explain, flag_of
from tts_core.judges.judging import judge_names, judges_of
from tts_core.memory.computer import free_disk_bytes
from tts_core.printable import counted, either, one_line
from tts_core.serving.source import ModelSource
from tts_core.serving.voices import voices_folder
from tts_core.text.duration import expected_seconds
from tts_core.voice.embedded import fingerprint

FAULTS = 20  # rows that cannot be spoken, and rejected ones, printed one by one
SOME_FAILED = 7  # exit code of a run in which some rows failed
LINE_SECONDS = 10.0  # between two lines of progress
RETRIES = 2  # of rejected rows, by default
MOST_REFUSED = 10  # rows in a row that could not be written, after which the run ends


class Checked(NamedTuple):
    """A call after the checks of its flags. settings: of its folder."""

    read: Input
    part: Division
    settings: dict[str, Any]
    requests: RowRequests
    setting: Setting


def run(flags: BatchFlags) -> int:
    """Run one call of the command and return its exit code: 0, or SOME_FAILED.

    Every flag is checked before weights are loaded.
    """
    call = checked(flags)
    if not flags.dry_run:
        return speak(flags, call)
    keyed, unreadable = with_keys(call.read.rows, call.settings)
    keyed, unable = call.requests.check(keyed)
    report_faults(by_number([*call.read.faults, *unreadable, *unable]), call.read.origins, rest="")
    click.echo(one_line(preview([row for row, _ in keyed], flags)))
    return 0


def checked(flags: BatchFlags) -> Checked:
    """Check every flag; no weights are loaded. Raises the error of the first that is wrong."""
    backend = flags.loading.backend
    check_backend(backend)
    FORMATS[flags.form].check()
    if flags.engine == "ray":
        from mlx_port.commands.batch.on_ray import check_ray

        check_ray()
    part = division(flags.shard)
    read = read_rows(flags.source).first(flags.limit)
    if "seed" in flags.options:
        raise UsageError("--seed: every row has its own; give it in the row, or none")
    check_options(flags.model, flags.options)
    folder, loading = on_this_machine(flags.model, flags.loading)
    parts = open_model(folder, loading)
    options = choose_options(str(parts.model), flags.options)
    given = {
        field.name: getattr(options, field.name) for field in fields(options) if field.name in flags.options
    }
    rejection = read_rejection(flags)
    settings = {
        "model": fingerprint() if folder is None else model_hash(Path(folder)),
        "backend": backend,
        "dtype": loading.dtype,
        "codec_precision": parts.codec_precision,
        "options": given,
        "format": flags.form,
        "captions": flags.captions,
    }
    if rejection is not None:
        settings["reject"] = [str(condition) for condition in rejection.conditions]
        settings["retries"] = rejection.retries
    labels = {"model": str(parts.model), "backend": backend, "codec_precision": parts.codec_precision}
    voices = flags.voices or voices_folder()
    work = BulkWork(given, voices, f".{flags.form}", flags.captions, labels)
    source = ModelSource(
        str(parts.model), parts.configs, parts.documents, partial(load_pipeline, parts, backend)
    )
    judges = flags.judges or max(1, (os.cpu_count() or 1) // (2 * len(devices(backend))))
    setting = Setting(folder, loading, flags.places, work, rejection, judges)
    return Checked(read, part, settings, RowRequests(source, work), setting)


def speak(flags: BatchFlags, call: Checked) -> int:
    """Speak the rows of this part that are not done, and return the exit code.

    Raises GenerationError if no row could be spoken.
    """
    read, (part, parts) = call.read, call.part
    suffix, captions = call.setting.work.suffix, flags.captions
    with OutputFolder(
        flags.out, call.settings, suffix=suffix, captions=captions, part=part, parts=parts
    ) as output:
        keyed, unreadable = with_keys(read.rows, call.settings)
        own = [pair for pair in keyed if pair[0].number % parts == part]
        faults = (*read.faults, *unreadable)
        broken = [fault for fault in faults if fault.number % parts == part]
        todo = [pair for pair in own if pair[1] not in output.done]
        done = len(own) - len(todo)
        todo, unable = call.requests.check(sorted(todo, key=lambda pair: -len(pair[0].text)))
        unable = by_number([*broken, *unable])
        progress = BatchProgress(len(own), done, quiet=flags.quiet)
        report_faults(unable, read.origins)
        for failed in unable:
            output.write(failed)
        failures = len(unable)
        if todo:
            with closing(engine(flags, call.setting, todo, call.part)) as outcomes:
                failures += write_all(outcomes, output, progress)
        whole = output.finish({key: row.number for row, key in keyed}, read.origins)
    click.echo(one_line(f"{counted(whole, 'row')} in {flags.out / 'manifest.jsonl'}; {progress.summary()}"))
    report_rejected(output.rejected)
    if failures:
        click.echo(one_line(f"{counted(failures, 'row')} failed; see {flags.out / 'errors.jsonl'}"), err=True)
        if failures == len(own) + len(broken):
            raise GenerationError("batch: no row could be spoken")
    # mlx.launch stops the other processes when one ends with another code than 0
    return SOME_FAILED if failures and "MLX_RANK" not in os.environ else 0


class Division(NamedTuple):
    """One part of the rows, which several processes divide. part: counted from 0.  parts: their number."""

    part: int
    parts: int


def division(shard: str | None) -> Division:
    """Read "i/n"; without it, the rank and size of MLX's distributed group, if mlx.launch started this.

    Raises UsageError for another form, and for both at once.
    """
    is_distributed = "MLX_RANK" in os.environ
    if shard is not None:
        if is_distributed:
            raise UsageError("--shard: mlx.launch divides the rows already; leave it out")
        match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", shard)
        if match is None or not int(match[1]) < int(match[2]):
            raise UsageError(f"--shard: {shard!r} is not a part; the first of two is 0/2, the second 1/2")
        return Division(int(match[1]), int(match[2]))
    if is_distributed:
        import mlx.core as mx

        group = mx.distributed.init()
        return Division(group.rank(), group.size())
    return Division(0, 1)


def by_number(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Sort outcomes in the order of the input."""
    return sorted(outcomes, key=lambda outcome: outcome.number)


def report_faults(
    faults: Sequence[Outcome], origins: Mapping[int, str], *, rest: str = "; all are in errors.jsonl"
) -> None:
    """Print the rows that cannot be spoken, FAULTS at most, before the first of the others is.

    origins: of the rows, by their numbers.  rest: where those that are not printed are listed.
    """
    lines = [f"{origins[fault.number]} ({fault.id}): {fault.error}" for fault in faults]
    _list(f"{counted(len(faults), 'row')} cannot be spoken; the others are:", lines, rest)


def report_rejected(rejected: Sequence[Mapping[str, Any]]) -> None:
    """Print the rows that stay rejected, with their figures. rejected: lines of the manifest."""
    lines = []
    for line in rejected:
        figures = ", ".join(f"{name} {value:.3g}" for name, value in line["judged"].items())
        found = figures or line.get("judge_error", "not judged")
        lines.append(f"{line['id']}: {found} after {counted(line['attempts'], 'attempt')}")
    head = f"{counted(len(rejected), 'row')} rejected; the best attempt of each is kept:"
    _list(head, lines, "; accepted is false in manifest.jsonl")


def _list(head: str, lines: Sequence[str], rest: str) -> None:
    """Print lines below a head on stderr, FAULTS at most; nothing if there are none."""
    for line in [head, *lines[:FAULTS]] if lines else ():
        click.echo(one_line(line), err=True)
    if len(lines) > FAULTS:
        click.echo(one_line(f"and {len(lines) - FAULTS} more{rest}"), err=True)


def read_rejection(flags: BatchFlags) -> Rejection | None:
    """Read the conditions, and find out whether their judges are installed. Raises NotFoundError if not."""
    if not flags.reject:
        if flags.retries is not None:
            raise UsageError("--retries: nothing is rejected; give --reject, such as wer>0.3")
        return None
    if not FORMATS[flags.form].is_read:
        readable = either(name for name in CORPUS if FORMATS[name].is_read)
        raise UsageError(f"--reject: judges cannot read {flags.form}; use --format {readable}")
    names = judge_names()
    conditions = tuple(Condition.parse(text, names) for text in flags.reject)
    judges = {condition.figure: names[condition.figure] for condition in conditions}
    judges_of(judges)
    return Rejection(conditions, RETRIES if flags.retries is None else flags.retries, judges)


def engine(
    flags: BatchFlags, setting: Setting, todo: list[tuple[TextRow, str]], part: Division
) -> Generator[Outcome]:
    """Choose what runs the rows."""
    if flags.engine == "ray":
        from mlx_port.commands.batch.on_ray import speak_on_ray

        return speak_on_ray(setting, todo, flags.workers, flags.gpus)
    environments = devices(flags.loading.backend) if part.parts == 1 else [{}]
    return speak_locally(partial(build_speaker, setting), todo, environments)


def write_all(outcomes: Iterable[Outcome], output: OutputFolder, progress: BatchProgress) -> int:
    """Write outcomes as they come; return the number of failures."""
    failures = refused = 0
    for outcome in outcomes:
        try:
            output.write(outcome)
            refused = 0
        except OSError as error:
            outcome = replace(outcome, error=explain(error, flag_of)[1])
            output.write(outcome)
            refused += 1
            if refused >= MOST_REFUSED:
                raise ResourceError(
                    f"batch: {counted(refused, 'row')} could not be written: {outcome.error}"
                ) from None
        failures += outcome.error is not None
        progress.add(outcome)
    return failures


def with_keys(
    rows: Iterable[TextRow], settings: Mapping[str, Any]
) -> tuple[list[tuple[TextRow, str]], list[Outcome]]:
    """Give every row its key and seed; rows whose reference cannot be read become outcomes."""
    named = {name: settings[name] for name in ("model", "backend", "dtype", "codec_precision", "options")}
    keyed, broken = [], []
    for row in rows:
        try:
            key = row_key(row, named)
        except Exception as error:
            broken.append(Outcome(row.number, "", row.id, error=explain(error, flag_of)[1]))
        else:
            keyed.append((seeded(row, key), key))
    return keyed, broken


def preview(rows: list[TextRow], flags: BatchFlags) -> str:
    """Write what a run would do."""
    seconds = sum(expected_seconds(row.text) for row in rows)
    needed = seconds * FORMATS[flags.form].bytes_per_second
    free = free_disk_bytes(flags.out)
    left = "" if free is None else f", {free / 1e9:.1f} GB are free"
    most = f"up to {needed / 1e6:,.0f} MB{left}"
    return f"{counted(len(rows), 'row')}, about {duration(seconds)} of speech, {most}"


class BatchProgress:
    """Lines now and then on stderr: rows and hours made and left."""

    def __init__(self, rows: int, done: int, *, quiet: bool):
        self.rows, self.before, self.quiet = rows, done, quiet
        self.made, self.failed, self.seconds = 0, 0, 0.0
        self.started = self.told = time.perf_counter()
        if done:
            self.say(f"{done} of {counted(rows, 'row')} there already")

    def add(self, outcome: Outcome) -> None:
        """Count a row."""
        self.made += 1
        self.failed += outcome.error is not None
        self.seconds += outcome.fields.get("duration", 0.0)
        now = time.perf_counter()
        if now - self.told >= LINE_SECONDS:
            self.told = now
            left = self.rows - self.before - self.made
            rest = duration((now - self.started) / self.made * left)
            self.say(
                f"{self.before + self.made} of {counted(self.rows, 'row')}, {self.summary()}, {rest} left"
            )

    def summary(self) -> str:
        """Speech made and its speed."""
        took = max(time.perf_counter() - self.started, 1e-9)
        failed = f", {self.failed} failed" if self.failed else ""
        if not self.seconds:
            return f"nothing new was spoken{failed}"
        return f"{duration(self.seconds)} of new speech, {speed(took / self.seconds)}{failed}"

    def say(self, line: str) -> None:
        """Print a line unless quiet."""
        if not self.quiet:
            print(one_line(line), file=sys.stderr, flush=True)
