"""Judge recordings row by row, and summarize."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tts_core.audio.files import MOST_SECONDS, read_audio
from tts_core.errors import SpeechError
from tts_core.judges import wheels
from tts_core.judges.distillmos import DistillMos
from tts_core.judges.dnsmos import DnsMos
from tts_core.judges.likeness import VoiceEncoder, cosine
from tts_core.judges.rows import RecordingRow
from tts_core.judges.statistics import ratio_interval
from tts_core.judges.voicing import VoiceActivity
from tts_core.judges.words import recognizer, untagged, word_errors, words_of
from tts_core.text import breaks
from tts_core.text.spoken import spoken

SAMPLE_RATE = 16_000  # Hz, of every judge
Figures = Mapping[str, float]
Judge = Callable[[RecordingRow, np.ndarray], Figures]


class Judged(NamedTuple):
    """A row with its figures, or the reason why it has none."""

    row: RecordingRow
    figures: dict[str, float]
    error: str | None = None


class Summary(NamedTuple):
    """A figure over all rows that have it, with its 95 % interval; one row has none.

    value: of wer over all words, else a mean.
    """

    figure: str
    judge: str
    rows: int
    value: float
    low: float | None
    high: float | None

    @property
    def interval(self) -> str:
        """Format the interval; empty if there is none."""
        return "" if self.low is None else f"{self.low:.3f} to {self.high:.3f}"


class Measure(NamedTuple):
    """A measure: its judge's name, the figures that it gives, and how to build it."""

    judge: str
    figures: tuple[str, ...]
    build: Callable[[], Judge]


def judge_names() -> dict[str, str]:
    """The judge of every figure, by the figure's name."""
    return {figure: measure.judge for measure in measures().values() for figure in measure.figures}


def judges_of(figures: Collection[str]) -> list[Judge]:
    """Build the judges of some figures. Raises NotFoundError for a missing package."""
    wanted = set(figures)
    return [measure.build() for measure in measures().values() if wanted.intersection(measure.figures)]


def measures(whisper: Path | None = None) -> dict[str, Measure]:
    """All measures by name. whisper: a folder of Whisper's weights, for words."""
    recognizing = recognizer(whisper)

    def words() -> Judge:
        recognizing.words(np.zeros(SAMPLE_RATE, np.float32))  # one that is missing is no fault of a recording

        def judge(row: RecordingRow, samples: np.ndarray) -> Figures:
            if row.text is None:
                return {}
            written = breaks.read(row.name, row.text).blanked  # pauses are not words
            wanted = words_of(spoken(untagged(written)))
            wrong = word_errors(wanted, recognizing.words(samples))
            return {"words": len(wanted), "word_errors": wrong, "wer": wrong / max(1, len(wanted))}

        return judge

    return {
        "words": Measure(recognizing.name, ("wer",), words),
        "naturalness": Measure("DistillMOS 0.9.1", ("mos",), _naturalness),
        "quality": Measure(
            "DNSMOS P.835", ("dnsmos_speech", "dnsmos_background", "dnsmos_overall"), _quality
        ),
        "likeness": Measure("Resemblyzer 0.1.4", ("likeness",), _likeness),
        "silence": Measure("Silero VAD 6.2.3", ("leading", "trailing", "longest_pause", "speech"), _silence),
    }


def _naturalness() -> Judge:
    network = DistillMos(wheels.content(wheels.DISTILLMOS))
    return lambda row, samples: {"mos": network.score(samples)}


def _quality() -> Judge:
    network = DnsMos(wheels.content(wheels.DNSMOS))

    def judge(row: RecordingRow, samples: np.ndarray) -> Figures:
        scores = network.score(np.clip(samples, -1, 1))
        return {f"dnsmos_{name}": score for name, score in scores._asdict().items()}

    return judge


def _likeness() -> Judge:
    network = VoiceEncoder(wheels.content(wheels.RESEMBLYZER))

    @lru_cache(maxsize=64)
    def reference(path: Path) -> np.ndarray:
        return network.embed(read_audio(path, SAMPLE_RATE))

    def judge(row: RecordingRow, samples: np.ndarray) -> Figures:
        if row.reference is None:
            return {}
        return {"likeness": cosine(network.embed(samples), reference(row.reference))}

    return judge


def _silence() -> Judge:
    network = VoiceActivity(wheels.content(wheels.SILERO))
    return lambda row, samples: network.voicing(samples)._asdict()


def judged(
    rows: Sequence[RecordingRow], judges: Sequence[Judge], *, most_seconds: float = MOST_SECONDS
) -> Iterator[Judged]:
    """Judge every row; one that cannot be read or judged costs only itself.

    most_seconds: of a recording; of a longer one no more is decoded, and it is not judged.
    """
    for row in rows:
        try:
            samples = read_audio(row.audio, SAMPLE_RATE, most_seconds=most_seconds)
            figures: dict[str, float] = {"seconds": len(samples) / SAMPLE_RATE}
            for judge in judges:
                figures.update(judge(row, samples))
        except SpeechError as error:
            yield Judged(row, {}, str(error))
        else:
            yield Judged(row, figures)


def summaries(found: Sequence[Judged], chosen: Sequence[Measure]) -> list[Summary]:
    """Sum up each figure of some measures; a figure that no row has is left out."""
    lines = []
    for measure in chosen:
        for figure in measure.figures:
            having = [item.figures for item in found if figure in item.figures]
            if not having:
                continue
            parts, wholes = [row[figure] for row in having], [1.0] * len(having)
            if figure == "wer":
                parts, wholes = [row["word_errors"] for row in having], [row["words"] for row in having]
            value = float(sum(parts) / max(sum(wholes), 1e-12))
            interval = ratio_interval(parts, wholes) if len(having) > 1 else (None, None)
            lines.append(Summary(figure, measure.judge, len(having), value, *interval))
    return lines
