"""`mlx-port cache`: folders that were converted by their hub ids."""

from __future__ import annotations

from dataclasses import asdict

import click

from tts_core.printable import json_text, one_line


@click.group(invoke_without_command=True)
@click.pass_context
def cache(context: click.Context) -> None:
    """List and remove models that were converted by their hub ids; without a command, list them.

    Published files are in the hub's own cache; `hf cache` lists and removes those.
    """
    if context.invoked_subcommand is None:
        context.invoke(list_models)


@cache.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print them as JSON.")
@click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
def list_models(as_json: bool = False) -> None:
    """List the converted models, with sizes and folders."""
    from converters.cache import entries, folders
    from tts_core.memory.fits import gigabytes

    found = entries()
    if as_json:
        click.echo(json_text([asdict(entry) | {"path": str(entry.path)} for entry in found]))
        return
    for entry in found:
        what = f"{entry.repository} {entry.commit[:12]} {entry.form}"
        click.echo(one_line(f"{what}: {gigabytes(entry.nbytes)} in {entry.path}"))
    total = gigabytes(sum(entry.nbytes for entry in found))
    click.echo(one_line(f"{len(found)} converted, {total}, in {folders()}"), err=True)


@cache.command()
@click.argument("repository", metavar="ID")
@click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
def remove(repository: str) -> None:
    """Remove all converted folders of a hub id; the next use converts it again."""
    from converters.cache import remove
    from tts_core.memory.fits import gigabytes

    for entry in remove(repository):
        click.echo(one_line(f"{entry.path}: removed, {gigabytes(entry.nbytes)}"))
