"""`mlx-port batch`: the flags. `run`, imported when the command runs, does the work."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from mlx_port.commands.batch.flags import BatchFlags
from mlx_port.commands.loading_flags import loading, loading_flags
from mlx_port.commands.model_flags import ModelCommand, chosen_options, option_flags
from tts_core.audio.formats.names import CORPUS


@click.command(cls=ModelCommand)
@click.argument("source", type=click.Path())
@click.option("--out", required=True, metavar="PATH", help="Folder for sounds and manifest.")
@click.option("--model", metavar="MODEL", help="As of generate.  [default: the embedded voice]")
@loading_flags("the folder's; with --backend torch by device")
@click.option("--voices", type=click.Path(), help="Folder of stored voices.")
@click.option("--format", "form", type=click.Choice(CORPUS), default="flac", help="Of the sounds.")
@click.option("--captions", type=click.Choice(["srt", "vtt"]), help="Write captions beside each sound.")
@click.option("--places", type=click.IntRange(1), default=8, help="Rows at once on a device, at most.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Speak the first N rows only.")
@click.option("--shard", metavar="I/N", help="Speak a part of the rows: 0/2 and 1/2 are all.")
@click.option("--engine", type=click.Choice(["local", "ray"]), default="local", help="What runs them.")
@click.option("--workers", type=click.IntRange(1), help="Ray: actors.  [default: one a GPU, or two]")
@click.option("--gpus", type=click.FloatRange(0), default=0, help="Ray: GPUs an actor takes.")
@click.option(
    "--reject",
    multiple=True,
    metavar="CONDITION",
    help="Speak rows again whose judged figure is bad, such as 'wer>0.3' or 'mos<3'; repeat for several.",
)
@click.option("--retries", type=click.IntRange(0, 20), help="Attempts after the first.  [default: 2]")
@click.option("--judges", type=click.IntRange(1), help="Judging processes a device.  [default: by its cores]")
@click.option("--dry-run", is_flag=True, help="Check the rows, print hours and disk, and speak nothing.")
@option_flags
@click.option("--quiet", is_flag=True, help="Print no progress.")
@click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
def batch(**given: Any) -> int:
    """Speak all rows of SOURCE into a folder, with a manifest; a stopped run is resumed by the same command.

    SOURCE is a .jsonl file (id, text, voice or ref_audio and ref_text, seed, options), a text file with a row
    a line, a folder with a chapter a file, or seed-tts-eval's meta.lst.
    """
    if not given["out"]:
        raise click.UsageError("--out: empty; give a folder")
    from pathlib import Path

    paths = {name: given[name] and Path(given[name]) for name in ("source", "out", "voices")}
    options, rest = chosen_options(given | paths)
    return import_module("mlx_port.commands.batch.run").run(
        BatchFlags(loading=loading(rest), options=options, **rest)
    )
