"""Measure the embedded voice's word error rate, speed and size in every precision.

    python benchmarks/voice_quality.py [--full] [--json FILE]

A speech recognizer (pocketsphinx) hears sentences and dialogues that are in no training data: first read by
flite, which the voice learned from and which is therefore the bound, then by the voice at its default
sampling, one sample a text. Quantized copies are written by the converter. PyTorch has no quantized layers
and would compute with the same dequantized numbers as MLX, so it runs only unquantized.

    WER     percent of wrong words, with its 95 % interval over texts
    RTF     seconds of computing per second of speech, codec included, one text at a time (median)
    MB      weights of the language model, and of the codec, which stays float32 in converted copies

Needs flite and pocketsphinx (`pip install pocketsphinx`); without them it prints so and measures nothing.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import platform
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib import metadata
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from converters.convert import convert
from converters.published import open_published
from converters.rules.dequantize import Quantization
from examples.train_voice.evaluation import PATIENCE, Item, items, judge, source
from examples.train_voice.flite import speak
from examples.train_voice.listening import TurnScore, interval, word_error_rate
from examples.train_voice.settings import read_settings
from tts_core.voice.embedded import CODEC, DIA

QUANTIZED = {f"{bits}-bit": Quantization.of("affine", 64, bits) for bits in (8, 6, 4)}
PLAIN = ("float32", "bfloat16")
SENTENCES, DIALOGUES = 8, 4  # sentences of each voice, dialogues of both; without --full
SINGLE = 3  # texts for the real-time factor, one at a time, after one for warm-up
SEED = 1


@dataclass(frozen=True)
class Row:
    """Row of the table; None in columns that do not apply."""

    side: str
    form: str
    word_error_rate: float
    low: float
    high: float
    by_group: dict[str, float]
    unfinished: int | None
    real_time_factor: float | None
    model_bytes: int | None
    codec_bytes: int | None


@dataclass(frozen=True)
class Form:
    """Form of the voice. load: returns the pipeline."""

    side: str
    name: str
    load: Callable[[], Any]
    model_bytes: int
    codec_bytes: int


def missing() -> str | None:
    """Describe a missing requirement in one line; None if nothing is missing."""
    if importlib.util.find_spec("pocketsphinx") is None:
        return "pocketsphinx is not installed: pip install pocketsphinx"
    try:
        speak("a", "slt")
    except (OSError, ValueError) as error:
        return f"{error}"
    return None


def some(chosen: Sequence[Item]) -> list[Item]:
    """Choose the default's texts: different sentences for each voice, and dialogues."""
    groups = {group: [one for one in chosen if one.group == group] for group in ("slt", "rms", "dialogues")}
    apart = groups["rms"][SENTENCES : 2 * SENTENCES]
    return [*groups["slt"][:SENTENCES], *apart, *groups["dialogues"][:DIALOGUES]]


def forms(folder: Path, dia: Path, codec: Path) -> Iterator[Form]:
    """Yield every form that can run here; copies are converted into `folder` when their turn comes."""
    if importlib.util.find_spec("torch") is not None:
        load = importlib.import_module("torch_ref").load
        shared = weights(codec)
        for name in PLAIN:
            made = partial(load, dia, codec=codec, dtype=name)
            yield Form("torch", name, made, parameters(dia) * (4 if name == "float32" else 2), shared)
    if importlib.util.find_spec("mlx") is not None:
        load = importlib.import_module("mlx_port").load
        for name, how in mlx_forms().items():
            copy = folder / name
            convert(open_published([dia], codec=codec, offline=True), copy, **how)
            yield Form("mlx", name, partial(load, copy), weights(copy), weights(copy / "codec"))


def mlx_forms() -> dict[str, dict[str, Any]]:
    """Arguments of the converter by form.

    On a CPU the unquantized rest of a quantized copy is float32: MLX's quantized products are 4 to 8 times
    faster there than with bfloat16.
    """
    import mlx.core as mx

    rest = "float32" if mx.default_device() == mx.cpu else "bfloat16"
    plain: dict[str, dict[str, Any]] = {name: {"dtype": name} for name in PLAIN}
    return plain | {name: {"dtype": rest, "quantization": how} for name, how in QUANTIZED.items()}


def weights(folder: Path) -> int:
    """Bytes of the safetensors in a folder, without subfolders."""
    return sum(file.stat().st_size for file in folder.glob("*.safetensors"))


def parameters(folder: Path) -> int:
    """Count the numbers in a published folder's safetensors."""
    from safetensors import safe_open

    count = 0
    for path in folder.glob("*.safetensors"):
        with safe_open(path, "numpy") as file:
            count += sum(int(np.prod(file.get_slice(name).get_shape())) for name in file.keys())  # noqa: SIM118
    return count


def spoken(pipeline: Any, chosen: Sequence[Item], seconds: Sequence[float]) -> list[Any]:
    """Speak all texts in one batch, each with its own seed and at most PATIENCE times the source's length."""
    rate = pipeline.sample_rate / pipeline.codec_config.hop_length
    return pipeline.generate_batch(
        [item.text for item in chosen],
        seed=[SEED + place for place in range(len(chosen))],
        max_frames=[min(int(PATIENCE * length * rate), pipeline.config.max_frames) for length in seconds],
    )


def speed(pipeline: Any, chosen: Sequence[Item]) -> float:
    """Median real-time factor of some texts, one at a time."""
    factors = [
        pipeline.generate(item.text, seed=SEED + place).real_time_factor
        for place, item in enumerate(chosen[: 1 + SINGLE])
    ]
    return median(factors[1:] or factors)


def row(
    side: str,
    form: str,
    chosen: Sequence[Item],
    scores: Sequence[list[TurnScore]],
    *,
    unfinished: int | None = None,
    real_time_factor: float | None = None,
    model_bytes: int | None = None,
    codec_bytes: int | None = None,
) -> Row:
    """Build a row of the table. scores: of every item's turns."""
    groups = {
        group: word_error_rate(
            [
                turn
                for item, turns in zip(chosen, scores, strict=True)
                if item.group == group
                for turn in turns
            ]
        )
        for group in dict.fromkeys(item.group for item in chosen)
    }
    low, high = interval(scores)
    whole = word_error_rate([turn for turns in scores for turn in turns])
    return Row(side, form, whole, low, high, groups, unfinished, real_time_factor, model_bytes, codec_bytes)


def table(rows: Sequence[Row]) -> list[str]:
    """Format as Markdown."""
    groups = list(rows[0].by_group)
    heads = ["", "WER (95 %)", *groups, "no end", "RTF", "model MB", "codec MB"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for one in rows:
        cells = [
            f"{one.side} {one.form}".strip(),
            f"{one.word_error_rate:.1f} % ({one.low:.1f} to {one.high:.1f})",
            *(f"{one.by_group[group]:.1f} %" for group in groups),
            "" if one.unfinished is None else f"{one.unfinished}",
            "" if one.real_time_factor is None else f"{one.real_time_factor:.2f}",
            "" if one.model_bytes is None else f"{one.model_bytes / 1e6:.1f}",
            "" if one.codec_bytes is None else f"{one.codec_bytes / 1e6:.1f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def machine() -> str:
    """Describe the machine and the versions."""
    names = ("mlx", "torch", "numpy", "pocketsphinx")
    found = {name: metadata.version(name) for name in names if importlib.util.find_spec(name)}
    versions = ", ".join(f"{name} {version}" for name, version in found.items())
    threads = os.environ.get("OMP_NUM_THREADS", "all")
    place = f"{platform.platform()}, {os.cpu_count()} cores, {threads} threads"
    return f"{place}, Python {platform.python_version()}, {versions}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--full", action="store_true", help="100 sentences in both voices, and 40 dialogues")
    parser.add_argument("--dia", type=Path, default=DIA, help="another voice, in the published layout")
    parser.add_argument("--codec", type=Path, default=CODEC)
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes for the recognizer")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    lacking = missing()
    if lacking:
        print(f"voice_quality: nothing measured: {lacking}")
        return
    synthesis = read_settings().synthesis
    chosen = items(synthesis.voices, None)
    chosen = chosen if given.full else some(chosen)
    print(machine())
    print(
        f"{len(chosen)} texts, {sum(len(item.turns) for item in chosen)} turns; seeds {SEED}, {SEED + 1}, ..."
    )
    print(flush=True)
    rows = []
    with get_context("spawn").Pool(given.workers) as pool, tempfile.TemporaryDirectory() as folder:

        def heard(samples: Sequence[np.ndarray]) -> list[list[TurnScore]]:
            return pool.map(judge, list(zip(chosen, samples, strict=True)), chunksize=1)

        sources = pool.map(partial(source, synthesis=synthesis), chosen)
        rows.append(row("flite", "itself", chosen, heard(sources)))
        print("\n".join(table(rows)), flush=True)
        seconds = [len(samples) / 16000 for samples in sources]
        for form in forms(Path(folder), given.dia, given.codec):
            pipeline = form.load()
            results = spoken(pipeline, chosen, seconds)
            factor = speed(pipeline, chosen)
            del pipeline
            rows.append(
                row(
                    form.side,
                    form.name,
                    chosen,
                    heard([result.audio for result in results]),
                    unfinished=sum(result.finish_reason != "stop" for result in results),
                    real_time_factor=factor,
                    model_bytes=form.model_bytes,
                    codec_bytes=form.codec_bytes,
                )
            )
            print(table(rows)[-1], flush=True)
    if given.json:
        given.json.write_text(json.dumps([asdict(one) for one in rows], indent=2) + "\n")


if __name__ == "__main__":
    main()
