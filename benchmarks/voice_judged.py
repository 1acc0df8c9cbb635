"""Measure what quantization costs the embedded voice, and the voice itself, by judges.

    python benchmarks/voice_judged.py [--sentences 20] [--workers 4]

Sentences of 4 to 14 words that are in no training data, half of them in each voice, read by flite, which the
voice learned from, and spoken by every form of the voice with the same seeds, default settings. Quantized
copies are written by the converter. PyTorch has no quantized layers and would compute with the same
dequantized numbers as MLX, so it runs only unquantized.

    wer         wrong words, by pocketsphinx, of all words
    mos         naturalness, 1 to 5, by DistillMOS
    dnsmos      overall quality, 1 to 5, by DNSMOS P.835
    likeness    cosine with flite's reading of the same sentence, by Resemblyzer's network

The first table has means with 95 % intervals over sentences, the second the differences from MLX in float32,
with intervals over pairs. Needs flite, the extra `judge`, and `mlx-port judge --install`.
"""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import soundfile

from benchmarks.lib.recognizer import missing
from benchmarks.lib.timing import arguments, machine
from converters.convert import convert
from converters.published import open_published
from converters.rules.dequantize import Quantization
from examples.train_voice.evaluation import PATIENCE, Item, items, source
from examples.train_voice.settings import read_settings
from tts_core.judges.judging import judges_of
from tts_core.judges.process import JudgeProcesses, Recording
from tts_core.judges.statistics import paired_interval, ratio_interval
from tts_core.voice.embedded import CODEC, DIA

FIGURES = ("wer", "mos", "dnsmos_overall", "likeness")
RATE = 16_000  # Hz, of flite and of the voice
YARDSTICK = "mlx float32"
QUANTIZED = {f"{bits}-bit": Quantization.of("affine", 64, bits) for bits in (8, 6, 4)}
PLAIN = ("float32", "bfloat16")
SEED = 1


class Form(NamedTuple):
    """Form of the voice. load: returns the pipeline."""

    name: str
    load: Callable[[], Any]


def forms(folder: Path, dia: Path, codec: Path) -> Iterator[Form]:
    """Yield every form that can run here; copies are converted into `folder` when their turn comes."""
    if find_spec("torch") is not None:
        load = import_module("torch_ref").load
        for name in PLAIN:
            yield Form(f"torch {name}", partial(load, dia, codec=codec, dtype=name))
    if find_spec("mlx") is not None:
        load = import_module("mlx_port").load
        for name, how in mlx_forms().items():
            copy = folder / name
            convert(open_published([dia], codec=codec, offline=True), copy, **how)
            yield Form(f"mlx {name}", partial(load, copy))


def mlx_forms() -> dict[str, dict[str, Any]]:
    """Arguments of the converter by form.

    On a CPU the unquantized rest of a quantized copy is float32: MLX's quantized products are 4 to 8 times
    faster there than with bfloat16.
    """
    import mlx.core as mx

    rest = "float32" if mx.default_device() == mx.cpu else "bfloat16"
    plain: dict[str, dict[str, Any]] = {name: {"dtype": name} for name in PLAIN}
    return plain | {name: {"dtype": rest, "quantization": how} for name, how in QUANTIZED.items()}


def spoken(pipeline: Any, said: Sequence[Item], seconds: Sequence[float]) -> list[Any]:
    """Speak all texts in one batch, each with its own seed and at most PATIENCE times the source's length."""
    rate = pipeline.sample_rate / pipeline.codec_config.hop_length
    return pipeline.generate_batch(
        [item.text for item in said],
        seed=[SEED + index for index in range(len(said))],
        max_frames=[min(int(PATIENCE * length * rate), pipeline.config.max_frames) for length in seconds],
    )


def chosen(count: int, voices: Any) -> list[Item]:
    """Choose sentences, other ones for each voice."""
    groups = {name: [item for item in items(voices, None) if item.group == name] for name in ("slt", "rms")}
    half = count // 2
    return groups["slt"][:half] + groups["rms"][half : 2 * half]


def heard(
    judges: JudgeProcesses,
    said: Sequence[Item],
    sounds: Sequence[np.ndarray],
    references: Sequence[Path | None],
) -> list[dict[str, float]]:
    """Judge recordings of some texts. Raises ValueError for one that cannot be judged."""
    for index, (item, sound, reference) in enumerate(zip(said, sounds, references, strict=True)):
        file = io.BytesIO()
        soundfile.write(file, sound, RATE, format="WAV", subtype="FLOAT")
        judges.begin(Recording(str(index), file.getvalue(), ".wav", item.text, reference))
    found: dict[int, dict[str, float]] = {}
    while judges.pending:
        for verdict in judges.verdicts(None):
            if verdict.figures is None:
                raise ValueError(f"text {verdict.key}: {verdict.error}")
            found[int(verdict.key)] = verdict.figures
    return [found[index] for index in range(len(said))]


def ratio(rows: Sequence[dict[str, float]], figure: str) -> tuple[list[float], list[float]]:
    """Parts and wholes of a figure: word errors of words, else a mean."""
    if figure == "wer":
        return [row["word_errors"] for row in rows], [row["words"] for row in rows]
    return [row[figure] for row in rows], [1.0] * len(rows)


def value(parts: Sequence[float], wholes: Sequence[float]) -> float:
    """The figure of all rows."""
    return sum(parts) / max(sum(wholes), 1e-12)


def cell(figure: str, mean: float, low: float, high: float, sign: str = "") -> str:
    """Format a figure with its interval."""
    if figure == "wer":
        return f"{100 * mean:{sign}.1f} % ({100 * low:{sign}.1f} to {100 * high:{sign}.1f})"
    return f"{mean:{sign}.3f} ({low:{sign}.3f} to {high:{sign}.3f})"


def line(name: str, rows: Sequence[dict[str, float]]) -> str:
    """Format a row of the first table."""
    cells = []
    for figure in FIGURES:
        parts, wholes = ratio(rows, figure)
        cells.append(cell(figure, value(parts, wholes), *ratio_interval(parts, wholes)))
    return "| " + " | ".join([name, *cells]) + " |"


def difference(name: str, rows: Sequence[dict[str, float]], others: Sequence[dict[str, float]]) -> str:
    """Format a row of the second table."""
    cells = []
    for figure in FIGURES:
        ours, theirs = ratio(rows, figure), ratio(others, figure)
        cells.append(cell(figure, value(*ours) - value(*theirs), *paired_interval(ours, theirs), sign="+"))
    return "| " + " | ".join([name, *cells]) + " |"


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--sentences", type=int, default=20)
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="judging processes")
    given = parser.parse_args()
    lacking = missing()
    if lacking:
        print(f"voice_judged: nothing measured: {lacking}")
        return
    synthesis = read_settings().synthesis
    said = chosen(given.sentences, synthesis.voices)
    sources = [source(item, synthesis=synthesis) for item in said]
    found: dict[str, list[dict[str, float]]] = {}
    head = "| " + " | ".join(["", *FIGURES]) + " |\n" + "|---" * (len(FIGURES) + 1) + "|"
    judges_of(FIGURES)  # what is missing is said here
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(JudgeProcesses(partial(judges_of, FIGURES), given.workers)) as judges,
    ):
        references = [Path(folder) / f"{index}.wav" for index in range(len(said))]
        for path, sound in zip(references, sources, strict=True):
            soundfile.write(path, sound, RATE, subtype="FLOAT")
        print(f"{machine()}\n{len(said)} sentences\n\n{head}", flush=True)
        found["flite itself"] = heard(judges, said, sources, references)
        print(line("flite itself", found["flite itself"]), flush=True)
        seconds = [len(sound) / RATE for sound in sources]
        for form in forms(Path(folder), DIA, CODEC):
            results = spoken(form.load(), said, seconds)
            found[form.name] = heard(judges, said, [result.audio for result in results], references)
            print(line(form.name, found[form.name]), flush=True)
    print(f"\nDifferences from {YARDSTICK}:\n\n{head}")
    for name, rows in found.items():
        if name not in (YARDSTICK, "flite itself"):
            print(difference(name, rows, found[YARDSTICK]), flush=True)


if __name__ == "__main__":
    main()
