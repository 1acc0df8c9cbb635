"""Requests of rows: options, references and texts, checked without a network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from tts_core.audio.files import read_audio_at_its_rate
from tts_core.bulk.outcome import Outcome
from tts_core.bulk.rows import TextRow
from tts_core.errors import explain, flag_of
from tts_core.options import options_class, single_values
from tts_core.prompt import Prompt, Reference
from tts_core.serving.source import ModelSource
from tts_core.serving.voices import VoiceStore, built_in

PROMPTS = 64  # references that stay in memory


@dataclass(frozen=True)
class BulkWork:
    """Settings of a worker, besides the rows.

    options: of all rows, by name; a row's own replace them.
    voices: the folder of stored voices.
    labels: fields of every manifest line.
    """

    options: Mapping[str, Any]
    voices: Path
    suffix: str
    captions: str | None
    labels: Mapping[str, str] = field(default_factory=dict)


class RowRequests:
    """Builds the requests of rows for one model."""

    def __init__(self, source: ModelSource, work: BulkWork):
        self.source, self.work = source, work
        self._stored = VoiceStore(work.voices).names()
        self._prompt = lru_cache(maxsize=PROMPTS)(self._read_prompt)
        self._built_in = lru_cache(maxsize=PROMPTS)(self._find_built_in)

    def request(self, row: TextRow) -> Any:
        """Build a row's request. Raises UsageError and NotFoundError for a row that cannot be spoken."""
        own = single_values(options_class(self.source.model), row.options)
        voice = row.voice
        if voice is not None and (inner := self._built_in(voice)):
            own, voice = {**own, "voice": inner}, None
        prompt = self._prompt(voice, row.ref_audio, row.ref_text)
        return self.source.request(row.text, {**self.work.options, **own, "seed": row.seed}, prompt)

    def recording(self, row: TextRow) -> Path | None:
        """Return the recording of a row's voice, of a stored one the first; None for a built-in voice."""
        if row.voice is not None and self._built_in(row.voice) is None:
            return VoiceStore(self.work.voices).recording(row.voice)
        return None if row.ref_audio is None else Path(row.ref_audio)

    def check(self, rows: Iterable[tuple[TextRow, str]]) -> tuple[list[tuple[TextRow, str]], list[Outcome]]:
        """Check rows with their keys; return the valid rows, and outcomes of the others."""
        good, bad = [], []
        for row, key in rows:
            try:
                self.request(row)
            except Exception as error:
                bad.append(failed(row, key, error))
            else:
                good.append((row, key))
        return good, bad

    def _find_built_in(self, voice: str) -> str | None:
        return built_in(voice, self.source.spec, self._stored)

    def _read_prompt(self, voice: str | None, sound: str | None, said: str | None) -> Prompt | None:
        if voice is not None:
            return VoiceStore(self.work.voices).prompt(voice)
        if sound is None:
            return None
        samples, rate = read_audio_at_its_rate(sound)
        return Prompt((Reference(samples, said, sample_rate=rate, name="ref_audio"),))


def failed(row: TextRow, key: str, error: Exception) -> Outcome:
    """Build the outcome of a row that ended with an error."""
    return Outcome(row.number, key, row.id, error=explain(error, flag_of)[1])
