"""`mlx-port judge --bits`: wrong words of one model at several numbers of bits, same sentences and seeds."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import mlx.core as mx

from mlx_port.commands.bench.cases import Case, Subject, choose_subject, fitting
from mlx_port.commands.bench.measure import load
from tts_core import models
from tts_core.audio.files import write_audio
from tts_core.errors import UsageError
from tts_core.judges.judging import Measure, Summary, judged, summaries
from tts_core.judges.rows import RecordingRow
from tts_core.judges.sentences import sentences
from tts_core.printable import lines, one_line
from tts_core.prompt import Prompt

BITS = ("32", "16", "8", "6", "5", "4", "3", "2")
BATCH, MOST_SECONDS = 10, 12.0  # texts spoken together; of a sentence


def judge_bits(
    model: str | None, bits: Sequence[str], words: Measure, recording: Path | None, transcript: str | None
) -> list[dict[str, Any]]:
    """Speak, judge and print a line for each number of bits; return the same as JSON values.

    model: folder or hub id; None is the embedded voice.
    recording, transcript: of the voice, for a model that needs one.
    Raises UsageError, or ResourceError if none of the sizes fits in memory.
    """
    if wrong := [bit for bit in bits if bit not in BITS]:
        raise UsageError(f"--bits: {wrong[0]!r} is none of {', '.join(BITS)}")
    judge = words.build()  # one that is not installed costs no speech
    subject, said = choose_subject(model, None), sentences()
    if models.MODELS[subject.name].of(subject.configs).needs_voice and recording is None:
        raise UsageError(f"--ref-audio: {subject.name} needs a recording of a voice")
    prompt = None if recording is None else Prompt.from_file(recording, transcript)
    longest, found, shown = max(said, key=len), [], []
    for case in fitting(subject, longest, MOST_SECONDS, batch=[BATCH], dtypes=None, bits=bits):
        form = {"bits": case.bits, "dtype": case.dtype}
        if case.refused is not None:
            click.echo(lines(f"{case.bits} bits, {case.dtype}: {case.refused}"))
            found.append(form | {"refused": case.refused})
            continue
        with tempfile.TemporaryDirectory() as folder:
            rows = _spoken(subject, case, said, prompt, Path(folder))
            [rate] = summaries(list(judged(rows, [judge])), [words])
        shown.append(f"{case.bits} bits, {case.dtype}: {_line(rate)}")
        click.echo(lines(shown[-1]))
        found.append(form | rate._asdict())
    if model is not None:
        _note_in_card(Path(str(subject.folder)), shown)
    return found


def _note_in_card(folder: Path, shown: Sequence[str]) -> None:
    """Add figures to the card of a converted folder, and keep those of other forms."""
    from converters.card import JUDGED, add_measurements, measurements

    again = {line.partition(":")[0] for line in shown}
    others = [
        line
        for line, heading in measurements(folder).items()
        if heading == JUDGED and line.partition(":")[0] not in again
    ]
    try:
        add_measurements(folder, [*others, *shown], JUDGED)
    except OSError as error:
        click.echo(one_line(f"{folder}: its model card was not changed ({error})"), err=True)


def _spoken(
    subject: Subject, case: Case, said: Sequence[str], prompt: Prompt | None, folder: Path
) -> list[RecordingRow]:
    """Speak all sentences, each with its own seed, to files."""
    pipeline, rows = load(subject, case), []
    how = {"max_frames": case.frames, **subject.speed.options(subject.configs)}
    for start in range(0, len(said), BATCH):
        texts = said[start : start + BATCH]
        seeds = list(range(start, start + len(texts)))
        prompts = None if prompt is None else [prompt] * len(texts)
        for seed, item in zip(
            seeds, pipeline.generate_batch(texts, prompts=prompts, seed=seeds, **how), strict=True
        ):
            path = folder / f"{seed}.wav"
            write_audio(path, item.audio, item.sample_rate)
            rows.append(RecordingRow(path.name, path, said[seed]))
    del pipeline
    gc.collect()
    mx.clear_cache()
    return rows


def _line(rate: Summary) -> str:
    interval = "" if rate.low is None or rate.high is None else f" ({rate.low:.1%} to {rate.high:.1%})"
    return f"{rate.value:.1%} wrong words{interval}, {rate.rows} sentences, {rate.judge}"
