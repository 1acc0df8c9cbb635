"""`mlx-port estimate`: the flags and the table.

Each model's part is its plan, in tts_core/<model>/footprint.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from tts_core import models
from tts_core.command.seconds import Seconds
from tts_core.errors import NotFoundError, UsageError
from tts_core.printable import json_text, lines, one_line

if TYPE_CHECKING:
    from converters.published import ModelPart
    from tts_core.config import Configs
    from tts_core.memory.footprint import Footprint

NO_PARTS = (
    "Nothing was measured for this checkpoint at these bits; `mlx-port verify` compares its layers, "
    "`mlx-port judge --bits` its words."
)
EIGHT, FOUR = ({"group_size": 64, "bits": bits, "mode": "affine"} for bits in (8, 4))
FORMATS: Mapping[str, tuple[Any, ...]] = {  # of weights → the machine
    "float32": ("float32", "mlx-cpu"),
    "bfloat16": ("bfloat16", "mlx-cpu"),
    "8 bits": ("bfloat16", "mlx-cpu", None, EIGHT),
    "4 bits": ("bfloat16", "mlx-cpu", None, FOUR),
}
MOST_SECONDS = 1_000_000  # eleven days of speech


@click.command()
@click.argument("source", metavar="[SRC]", required=False)
@click.option("--model", metavar="SRC", help="SRC by a flag.")
@click.option(
    "--codec", metavar="SRC", help="Codec, if SRC does not contain it.  [default: the published one]"
)
@click.option("-t", "--text", help="Text to speak.  [default: the longest that the model takes]")
@click.option(
    "--seconds",
    type=Seconds(MOST_SECONDS),
    help="Seconds of speech.  [default: the longest that the model can generate]",
)
@click.option("--batch", type=click.IntRange(1, 1_000_000), default=1, help="Texts in one batch.")
@click.option(
    "--dtype",
    type=click.Choice(["float32", "bfloat16", "float16"]),
    help="Type of weights and activations.  [default: as in SRC; embedded voice: float32]",
)
@click.option(
    "--codec-precision",
    type=click.Choice(["float32", "tf32", "bfloat16"]),
    help="Rounding of the codec's decoder on CUDA (PyTorch).  [default: tf32 beside networks in half "
    "precision, else float32]",
)
@click.option("-q", "--quantize", is_flag=True, help="Assume a copy quantized with convert-weights -q (MLX).")
@click.option(
    "--q-bits",
    type=click.Choice(["2", "3", "4", "5", "6", "8"]),
    help="Bits per weight.  [default: 8; mxfp4, nvfp4, int4: 4]",
)
@click.option(
    "--q-group-size",
    type=int,
    metavar="N",
    help="Weights per scale.  [default: 64; mxfp4, mxfp8: 32; nvfp4: 16]",
)
@click.option(
    "--q-mode",
    type=click.Choice(["affine", "mxfp4", "mxfp8", "nvfp4", "int8", "int4"]),
    help="Format; int8 and int4 are MetaVoice's own.  [default: affine]",
)
@click.option("--json", "as_json", is_flag=True, help="Print bytes as JSON.")
@click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
def estimate(
    source: str | None,
    model: str | None,
    codec: str | None,
    text: str | None,
    seconds: float | None,
    batch: int,
    dtype: str | None,
    codec_precision: str | None,
    quantize: bool,
    q_bits: str | None,
    q_group_size: int | None,
    q_mode: str | None,
    as_json: bool,
) -> None:
    """Estimate the peak memory of a model on each backend.

    SRC: folder or file of a model, converted or not, its published name, or its name, as dia; nothing is
    downloaded. Without one, the embedded voice.
    """
    from converters.card import measurements
    from tts_core.memory import computer
    from tts_core.memory.machine import BACKENDS, Machine

    if source is not None and model is not None:
        raise UsageError("SRC: given twice; leave SRC or --model out")
    model = source if model is None else model
    how_many = {"--q-bits": q_bits, "--q-group-size": q_group_size, "--q-mode": q_mode}
    if not quantize and (given := [flag for flag, value in how_many.items() if value]):
        raise UsageError(f"{', '.join(given)}: only with -q")
    found = read_model(model, codec)
    quantization = found.quantization
    if quantize:
        from converters.rules.original_quant import quantization_of

        if quantization is not None:
            raise UsageError(f"-q: {model} is already quantized; leave the flag out")
        bits = None if q_bits is None else int(q_bits)
        quantization = quantization_of(q_mode or "affine", q_group_size, bits).to_dict()
    how: dict[str, Any] = {"dtype": dtype or found.dtype, "quantization": quantization}
    plan = models.MODELS[found.name].code().plan
    job = plan.job(found.configs, text, seconds, batch)
    needed = {
        backend: plan.footprint(
            found.configs, job, Machine(backend=backend, codec_precision=codec_precision, **how)
        )
        for backend in BACKENDS
    }
    formats = {
        name: plan.footprint(found.configs, job, Machine(*form)).weights for name, form in FORMATS.items()
    }
    measured = {} if model is None else measurements(Path(model).expanduser())
    if quantize and quantization is not None:  # of a copy only `judge --bits` has figures
        of_copy = f"{quantization['bits']} bits,"
        measured = {line: heading for line, heading in measured.items() if line.startswith(of_copy)}
    if as_json:
        known = {"job": asdict(job), **how, "measured": list(measured), "weights": formats}
        click.echo(json_text({**known, "backends": facts(needed)}))
    else:
        texts = "a text" if batch == 1 else f"{batch} texts"
        above = f"MB at the peak of {texts} of {job.frames / plan.frame_rate(found.configs):.1f} s of speech"
        of_it = [one_line(f"{heading[3:]}: {line}") for line, heading in measured.items()] or [NO_PARTS]
        shown = [above, "", *table(needed), "", *notes(needed, formats, computer.free_bytes()), "", *of_it]
        click.echo(lines("\n".join(shown)))


class StoredModel(NamedTuple):
    """A model and how it is stored."""

    name: str  # of the model
    configs: Configs
    dtype: str
    quantization: dict[str, Any] | None


def read_model(model: str | None, codec: str | None) -> StoredModel:
    """Read the configurations of the model that the flags name. No tensor is read."""
    from converters.published import open_published
    from tts_core.voice.embedded import CODEC, DIA

    if model is None:
        voice = open_published([DIA], codec=codec or CODEC, offline=True)
        return _of_parts(str(voice.model), voice.parts)._replace(dtype="float32")  # as it is converted
    here, known = Path(model).expanduser().exists(), models.published()
    size = next(iter(models.MODELS[model].sizes)) if model in models.NAMES else model
    if size in known and not here:
        name, configs = known[size]
        return StoredModel(name, configs, models.MODELS[name].published_dtype, None)
    try:
        found = open_published([model], codec=codec, offline=True, flag="--model")
        return _of_parts(str(found.model), found.parts)
    except NotFoundError:
        without = read_without_codecs(model, codec)
        if without is not None:
            return without
        if here:
            raise
        raise NotFoundError(
            f"--model: {model}: no such file, not in the hub's cache, and estimate downloads nothing; "
            f"give a folder, or one of {', '.join((*models.NAMES, *known))}"
        ) from None


def _of_parts(name: str, parts: Mapping[str, ModelPart]) -> StoredModel:
    root = parts[name]
    configs = {kind: part.config for kind, part in parts.items()}
    return StoredModel(name, configs, root.dtype, dict(root.quantization) if root.quantization else None)


def read_without_codecs(model: str, codec: str | None) -> StoredModel | None:
    """Read a model that lacks some of its codecs; published sizes replace those that are missing.

    Returns None if no model's own networks are complete.
    """
    from converters.published import open_published

    for name in models.NAMES:
        spec = models.MODELS[name]
        try:
            own = open_published([model], offline=True, parts=list(spec.networks)).parts
        except NotFoundError:
            continue
        found = _of_parts(name, own)
        usual = next(iter(spec.sizes.values()))
        codecs = {
            kind: read_codec(kind, model, codec) or usual[kind] for kind in spec.parts if kind not in own
        }
        return found._replace(configs={**found.configs, **codecs})
    return None


def read_codec(kind: str, model: str, codec: str | None) -> object | None:
    """Read the configuration of a codec from --codec or the model's folder; None if neither contains it."""
    from converters.published import open_published

    given = codec if models.network(kind).folder == "codec" else None
    try:
        return open_published([given or model], offline=True, parts=(kind,)).parts[kind].config
    except NotFoundError:
        if given is not None:
            raise
        return None


def table(needed: Mapping[str, Footprint]) -> list[str]:
    """Format footprints in MB: a row per kind of memory, a column per backend."""
    rows = [f"{'':<14}" + "".join(f"{backend:>12}" for backend in needed)]
    for name in ("weights", "libraries", "row", "work", "total"):
        sizes = [f"{getattr(found, name) / 1e6:>12,.0f}" for found in needed.values()]
        rows.append(f"{name:<14}" + "".join(sizes))
    return rows


def notes(needed: Mapping[str, Footprint], formats: Mapping[str, int], free: int | None) -> list[str]:
    """Explain the rows of the table. formats: bytes of the weights.  free: bytes of this machine."""
    from tts_core.memory.footprint import MEASURED

    known = ", ".join(f"{name} {size / 1e6:,.0f}" for name, size in formats.items())
    footprint, *_ = needed.values()
    where = "; ".join(f"{backend}: {MEASURED.get(backend, 'not measured')}" for backend in needed)
    found = [
        f"weights: {known} (quantized in MLX only)",
        "libraries: workspaces and caches of BLAS and convolutions",
        f"row: keys, values and states of streams; a minute of speech takes {footprint.minute / 1e6:,.0f}",
        "work: the most that prompts, steps and codec take beside it; the codec runs after the steps, on "
        "torch-cuda beside them",
        f"work was measured on: {where}",
    ]
    return found if free is None else [*found, "", f"This machine has {free / 1e6:,.0f} MB free."]


def facts(needed: Mapping[str, Footprint]) -> dict[str, Any]:
    """Return footprints by backend as JSON-serializable values, in bytes, and where work was measured."""
    from tts_core.memory.footprint import MEASURED

    return {
        backend: {
            **found._asdict(),
            "loaded": found.loaded,
            "total": found.total,
            "work_measured_on": MEASURED.get(backend),
        }
        for backend, found in needed.items()
    }
