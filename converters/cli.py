"""The `convert-weights` command; it imports nothing heavier than click before a conversion starts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from tts_core.command.runner import leave
from tts_core.errors import UsageError
from tts_core.printable import json_text, one_line


class _Command(click.Command):
    """Command that also accepts mlx-lm's spellings: --mlx_path for --mlx-path, --model for --hf-path."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        known = {name for parameter in self.params for name in parameter.opts}
        return super().parse_args(ctx, [_spelling(argument, known) for argument in args])


def _spelling(argument: str, known: set[str]) -> str:
    name, equals, value = argument.partition("=")
    ours = {"--model": "--hf-path"}.get(name, name.replace("_", "-"))
    return ours + equals + value if name not in known and ours in known else argument


@click.command("convert-weights", cls=_Command, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("words", metavar="SRC... DST", nargs=-1)
@click.option(
    "--hf-path", "sources", metavar="SRC", multiple=True, help="SRC by a flag; repeat it for several."
)
@click.option(
    "--mlx-path",
    metavar="DST",
    help="DST by a flag.  [default: mlx_model]",
)
@click.option(
    "--codec",
    metavar="SRC",
    help="Codec of the model: DAC, EnCodec.  [default: in SRC, beside it, or from the hub]",
)
@click.option("--config", metavar="FILE", help="JSON with sizes that the tensors do not show.")
@click.option(
    "--include-mbd", is_flag=True, help="Also convert multi-band diffusion, the other decoder (CC-BY-NC 4.0)."
)
@click.option(
    "--dtype",
    type=click.Choice(["float32", "bfloat16", "float16"]),
    help="Dtype of the large networks; norms, codec and vocoder stay float32.  [default: as in SRC]",
)
@click.option("-q", "--quantize", is_flag=True, help="Quantize the large linear layers.")
@click.option(
    "--q-bits",
    type=click.Choice(["2", "3", "4", "5", "6", "8"]),
    help="Bits per weight.  [default: 8; mxfp4, nvfp4, int4: 4]",
)
@click.option(
    "--q-group-size",
    type=int,
    metavar="N",
    help="Weights per scale.  [default: 64; mxfp4, mxfp8: 32; nvfp4: 16; int8, int4: 128]",
)
@click.option(
    "--q-mode",
    type=click.Choice(["affine", "mxfp4", "mxfp8", "nvfp4", "int8", "int4"]),
    help="Quantization; int8 and int4 are the model's own.  [default: affine]",
)
@click.option("-d", "--dequantize", is_flag=True, help="Dequantize a converted SRC.")
@click.option(
    "--cross-rope/--no-cross-rope",
    default=None,
    help="Rotary positions in cross-attention: yes in v0.1, no in 0626.  [default: from SRC's schema]",
)
@click.option("--revision", metavar="REV", help="Branch, tag or commit of hub ids in SRC.")
@click.option("--dry-run", is_flag=True, help="Print the plan; read and write no tensors.")
@click.option("--force", is_flag=True, help="Replace DST if it is a converted model.")
@click.option(
    "--upload-repo",
    metavar="NAME",
    help="Upload DST to the hub as owner/name; with --dry-run: show the card.",
)
@click.option("--offline", is_flag=True, help="Use the hub's cache only; no network.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
@click.version_option(package_name="mlx-port", message="%(package)s %(version)s")
def convert_weights(
    words: tuple[str, ...],
    sources: tuple[str, ...],
    mlx_path: str | None,
    codec: str | None,
    config: str | None,
    include_mbd: bool,
    dtype: str | None,
    quantize: bool,
    q_bits: str | None,
    q_group_size: int | None,
    q_mode: str | None,
    dequantize: bool,
    cross_rope: bool | None,
    revision: str | None,
    dry_run: bool,
    force: bool,
    upload_repo: str | None,
    offline: bool,
    as_json: bool,
) -> None:
    """Convert published weights SRC into a folder DST that mlx_port loads.

    SRC: folder, file or hub id of a published model, or "embedded", the voice of this package. Give several
    SRC for parts in several places. DST must not exist.
    """
    given = [
        flag
        for flag, value in (("--q-bits", q_bits), ("--q-group-size", q_group_size), ("--q-mode", q_mode))
        if value
    ]
    if given and not quantize:
        raise UsageError(f"{', '.join(given)}: only with -q")
    if quantize and dequantize:
        raise UsageError("-q, -d: give only one of them")

    if upload_repo is not None:
        from converters.files.upload import check_name

        check_name(upload_repo, offline=offline)
    flag = "--hf-path" if sources else "SRC"
    sources, mlx_path = _arrange(words, sources, mlx_path)

    from converters.card import card_of
    from converters.convert import outline, version, write
    from converters.files.destination import check_destination, clear_leftovers
    from converters.published import open_published
    from converters.rules.original_quant import quantization_of
    from converters.summary import summary

    how = (
        quantization_of(q_mode or "affine", q_group_size, int(q_bits) if q_bits else None)
        if quantize
        else None
    )
    taken = None  # why DST cannot be written
    if dry_run:
        try:
            check_destination(Path(mlx_path), force=force)
        except UsageError as fault:
            taken = str(fault)
    else:  # before anything is fetched
        clear_leftovers(Path(mlx_path).absolute().parent)
        check_destination(Path(mlx_path), force=force)
    published = open_published(
        sources,
        codec=codec,
        cross_rope=cross_rope,
        config=config,
        include=("mbd",) if include_mbd else (),
        revision=revision,
        offline=offline,
        flag=flag,
    )
    quantized = any(part.quantization for part in published.parts.values())
    if dequantize and not quantized:
        raise UsageError(f"-d: {', '.join(sources)} is not quantized")
    if quantized and not (dequantize or quantize):
        raise UsageError(
            f"{flag}: {', '.join(sources)} is already converted and quantized; -d dequantizes it"
        )
    whole = outline(published, dtype=dtype, quantization=how)
    if dry_run:
        report = whole.report() | {"ignored_files": dict(published.ignored)}
        if taken is not None:
            report["destination"] = taken
        if upload_repo is not None:
            card = card_of(published, whole.dtype, how, version(), upload_repo)
            report |= {"upload": upload_repo, "card": card, "uploaded": whole.files()}
    else:
        from tqdm import tqdm

        # shown at a terminal only
        with tqdm(
            total=whole.nbytes, unit="B", unit_scale=True, desc="converting", leave=False, disable=None
        ) as bar:
            report = write(
                published, whole, mlx_path, force=force, progress=bar.update, repository=upload_repo
            )
    if as_json:
        click.echo(json_text(report, sort_keys=True))
    else:
        click.echo("\n".join(map(one_line, summary(report, None if dry_run else mlx_path))))
    if upload_repo is not None and not dry_run:
        from converters.files.upload import upload

        click.echo(one_line(f"uploaded to {upload(Path(mlx_path), upload_repo)}"), err=as_json)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit with its code."""
    leave(convert_weights, sys.argv[1:] if arguments is None else arguments)


def _arrange(
    unflagged: tuple[str, ...], sources: tuple[str, ...], destination: str | None
) -> tuple[tuple[str, ...], str]:
    """Return the sources and the destination. unflagged: words without a flag; the last of several is DST."""
    if "" in (*unflagged, *sources, destination):
        raise UsageError("SRC, DST: one of them is empty; give a name")
    words = [*unflagged]
    if destination is None and words and (sources or len(words) > 1):
        destination = words.pop()
    if not words and not sources:
        raise UsageError("SRC: missing; give a folder, a file or a hub id such as nari-labs/Dia-1.6B-0626")
    return (*sources, *words), destination or "mlx_model"


if __name__ == "__main__":
    main()
