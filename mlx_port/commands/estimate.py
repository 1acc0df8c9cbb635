"""`mlx-port estimate`: the flags and the table. The arithmetic is in tts_core/dia/memory.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

if TYPE_CHECKING:
    from tts_core.codecs.dac import DacConfig
    from tts_core.dia.config import DiaConfig
    from tts_core.dia.memory import Estimate, Job


@click.command()
@click.option(
    "--model",
    metavar="SRC",
    help="Folder or file, published or converted, or a published name; nothing is downloaded.  "
    "[default: the embedded voice]",
)
@click.option(
    "--codec", metavar="SRC", help="The DAC, where SRC does not hold it.  [default: the 44 kHz one]"
)
@click.option("-t", "--text", help="What to say.  [default: as much as the model takes]")
@click.option(
    "--seconds", type=click.FloatRange(0, min_open=True), help="Of speech.  [default: as long as it can be]"
)
@click.option("--batch", type=click.IntRange(1), default=1, show_default=True, help="Texts at once.")
@click.option(
    "--dtype",
    type=click.Choice(["float32", "bfloat16", "float16"]),
    help="Of weights and activations.  [default: as in SRC]",
)
@click.option("-q", "--quantize", is_flag=True, help="As convert-weights -q makes it (MLX).")
@click.option("--q-bits", type=click.Choice(["2", "3", "4", "5", "6", "8"]), help="[default: 4; mxfp8: 8]")
@click.option("--q-group-size", type=int, metavar="N", help="[default: 64; mxfp4, mxfp8: 32; nvfp4: 16]")
@click.option(
    "--q-mode",
    type=click.Choice(["affine", "mxfp4", "mxfp8", "nvfp4", "int8", "int4"]),
    help="int8, int4: MetaVoice's own.  [default: affine]",
)
@click.option("--json", "as_json", is_flag=True, help="Print bytes as JSON.")
@click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
def estimate(**flags: Any) -> None:
    """Print the memory that a model takes on each backend, at its peak."""
    _run(**flags)


def _run(
    model: str | None,
    codec: str | None,
    text: str | None,
    seconds: float | None,
    batch: int,
    dtype: str | None,
    quantize: bool,
    q_bits: str | None,
    q_group_size: int | None,
    q_mode: str | None,
    as_json: bool,
) -> None:
    import json
    from dataclasses import asdict

    from tts_core.dia.memory import BACKENDS
    from tts_core.dia.memory import estimate as compute
    from tts_core.errors import UsageError
    from tts_core.memory import machine

    other = read_other(model)
    if other is not None:
        configs, stored, quantization = other.configs, other.dtype, other.quantization
    else:
        config, codec_config, stored, quantization = read_model(model, codec)
    if quantize or q_bits or q_group_size or q_mode:
        from converters.rules.original_quant import quantization_of

        if quantization is not None:
            raise UsageError(f"-q: {model} is quantised already; leave the flag out")
        bits = None if q_bits is None else int(q_bits)
        quantization = quantization_of(q_mode or "affine", q_group_size, bits).to_dict()
    how: dict[str, Any] = {"dtype": dtype or stored, "quantization": quantization}
    around: tuple[str, str]
    if other is not None:
        guesses, said = other.front.guess(configs, text, seconds, batch, **how)
        around, job = other.front.headline(said), asdict(said)
    else:
        one = plan(config, codec_config, text, seconds, batch)
        guesses = [compute(config, codec_config, one, backend=name, **how) for name in BACKENDS]
        around, job = headings(one, codec_config), asdict(one)
    if as_json:
        click.echo(json.dumps({"job": job, **how, "backends": facts(guesses)}, indent=2))
    else:
        click.echo(table(guesses, *around, machine.free_bytes()))


class Other(NamedTuple):
    """A model that is not Dia. front: its module of this command; dtype and quantization: as stored."""

    front: Any
    configs: Mapping[str, Any]
    dtype: str
    quantization: dict[str, Any] | None


def read_other(model: str | None) -> Other | None:
    """What the flag names, if it is no Dia; configurations by kind, no tensor is read."""
    from importlib import import_module
    from pathlib import Path

    from converters.published import open_published
    from tts_core.errors import SpeechError

    for kind in ("mars5", "metavoice"):
        front = import_module(f"mlx_port.commands.estimate_{kind}")
        if model == front.PUBLISHED and not Path(front.PUBLISHED).exists():
            return Other(front, front.CONFIGS, "float32", None)
        try:
            part = open_published([model or ""], offline=True, parts=(kind,)).parts[kind]
        except SpeechError:
            continue
        parts = open_published([str(model)], offline=True).parts
        configs = {name: one.config for name, one in parts.items()}
        return Other(front, configs, part.dtype, dict(part.quantization) if part.quantization else None)
    return None


def read_model(
    model: str | None, codec: str | None
) -> tuple[DiaConfig, DacConfig, str, dict[str, Any] | None]:
    """Both configurations, the dtype as stored, and the quantisation; no tensor is read."""
    from pathlib import Path

    from tts_core.errors import NotFoundError
    from tts_core.published_sizes import DAC_44KHZ
    from tts_core.published_sizes import DIA as KNOWN
    from tts_core.voice.embedded import CODEC, DIA

    if model in KNOWN and not Path(model).exists():
        return KNOWN[model], DAC_44KHZ, "float32", None

    from converters.published import open_published

    if model is None:
        found = open_published([DIA], codec=codec or CODEC, offline=True)
        return found.dia.config, found.codec.config, "float32", None  # as it is converted and loaded
    try:
        dia = open_published([model], codec=codec, offline=True, parts=("dia",)).dia
    except NotFoundError:
        if Path(model).expanduser().exists():
            open_published([model], codec=codec, offline=True)  # says what is missing of the model that it is
            raise
        raise NotFoundError(
            f"--model: {model}: no such file, nor is it in the hub's cache, and nothing is downloaded here; "
            f"give a folder, or one of {', '.join(KNOWN)}"
        ) from None
    config = read_codec(model, codec) or DAC_44KHZ
    return dia.config, config, dia.dtype, dict(dia.quantization) if dia.quantization else None


def read_codec(model: str, codec: str | None) -> DacConfig | None:
    """The codec of the flag, or the one in the model's folder; None where neither holds one."""
    from converters.published import open_published
    from tts_core.errors import NotFoundError

    try:
        return open_published([codec or model], offline=True, parts=("dac",)).codec.config
    except NotFoundError:
        if codec is not None:
            raise
        return None


def plan(config: DiaConfig, codec: DacConfig, text: str | None, seconds: float | None, batch: int) -> Job:
    """The longest run that the flags allow: what is not told is taken as long as the model allows."""
    import math

    from tts_core.dia.long_text import cut_text
    from tts_core.dia.memory import Job
    from tts_core.dia.text import prepare
    from tts_core.dia.tokenizer import tokenize
    from tts_core.errors import UsageError

    limit = config.max_text_bytes
    size = limit  # pieces fill a window at most
    if text is not None and len(cut_text(config, codec, text, None, "auto")) == 1:
        size = len(tokenize(prepare(text, limit)))
    frames = config.max_frames if seconds is None else math.ceil(seconds * codec.frame_rate)
    if frames > config.max_frames:
        longest = config.max_frames / codec.frame_rate
        raise UsageError(f"seconds: {seconds:g} is more than this model can make, {longest:.1f}")
    return Job(size, frames, batch=batch)


def headings(job: Job, codec: DacConfig) -> tuple[str, str]:
    """What stands above Dia's table, and below it."""
    texts = "a text" if job.batch == 1 else f"{job.batch} texts"
    seconds = job.frames / codec.frame_rate
    together = "The larger of activations and codec counts: they are not there together."
    first = " Prompts are encoded before that." if job.prompt_frames else ""
    above = f"MB at the peak of {texts} of {job.text_bytes} bytes and {seconds:.1f} s of speech"
    return above, together + first


def table(guesses: Sequence[Estimate], above: str, below: str, free: int | None) -> str:
    """One line a term, one column a backend, in MB; below, what each line is."""
    lines = [above, ""]
    lines.append(" " * 14 + "".join(f"{guess.backend:>12}" for guess in guesses))
    rows = [
        (terms[0].name, [term.bytes for term in terms])
        for terms in zip(*[g.terms for g in guesses], strict=True)
    ]
    rows.append(("total", [guess.total for guess in guesses]))
    lines += [f"{name:<14}" + "".join(f"{size / 1e6:>12,.0f}" for size in sizes) for name, sizes in rows]
    lines += ["", below, ""]
    for terms in zip(*[guess.terms for guess in guesses], strict=True):
        reasons: dict[str, list[str]] = {}
        for guess, term in zip(guesses, terms, strict=True):
            reasons.setdefault(term.why, []).append(guess.backend)
        for why, backends in reasons.items():
            which = "" if len(reasons) == 1 else f" ({', '.join(backends)})"
            lines.append(f"{terms[0].name}{which}: {why}")
    if free is not None:
        lines += ["", f"This machine has {free / 1e6:,.0f} MB free."]
    return "\n".join(lines)


def facts(guesses: Sequence[Estimate]) -> dict[str, Any]:
    """The same as JSON holds it, in bytes, by backend."""
    return {
        guess.backend: {
            "terms": {term.name: {"bytes": term.bytes, "why": term.why} for term in guess.terms},
            "loaded": guess.loaded,
            "total": guess.total,
        }
        for guess in guesses
    }
