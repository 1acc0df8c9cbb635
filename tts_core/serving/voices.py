"""Voices by name, in one folder for the server and the commands.

A voice is a folder of its name with 1.wav, 2.wav, ... (one recording a speaker) and voice.json, its record.
It appears and disappears by one rename, so that a killed process leaves a whole voice or none.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tts_core.audio.files import read_audio_at_its_rate, write_audio
from tts_core.audio.recordings import check_stored
from tts_core.errors import CheckpointError, NotFoundError, ResourceError, UsageError, did_you_mean
from tts_core.files.json_object import read_json
from tts_core.files.whole import sync
from tts_core.models import Model
from tts_core.printable import counted, json_text
from tts_core.prompt import Prompt, Reference
from tts_core.text.checks import check_words

_LOG = logging.getLogger("tts_core")
RECORD = "voice.json"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
AGREED = ("true", "yes", "agreed", "i agree")  # consent, in any case
LONGEST_TEXT = 4096  # characters of a transcript or of a consent
LONGEST = 1 << 53  # seconds of a record: whole numbers that every reader of JSON keeps
_HIDDEN = re.compile(r"\.(?:new|old)-[a-z0-9_]{8}")  # as tempfile.mkdtemp completes it
_ABANDONED = 3600  # seconds after which a hidden folder is a killed process's


class TakenError(UsageError):
    """A voice of that name exists."""


@dataclass(frozen=True)
class Voice:
    """The record of a voice.

    consent: the statement that came with it.
    created: seconds since 1970.
    seconds: of its recordings.
    transcripts: of the recordings, in order; None where there is none.
    """

    name: str
    consent: str
    created: int
    seconds: tuple[float, ...]
    transcripts: tuple[str | None, ...]


class VoiceStore:
    """The voices of a folder, which the first `add` creates. Several processes may use it at once."""

    def __init__(self, folder: str | os.PathLike[str]):
        self.folder = Path(folder).expanduser()

    def names(self) -> list[str]:
        """List the voices, sorted."""
        try:
            entries = sorted(os.listdir(self.folder))
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [name for name in entries if self._is_known(name)]

    def __iter__(self) -> Iterator[Voice]:
        """Yield the voices in the order of their names; one that is removed meanwhile is left out."""
        for name in self.names():
            with contextlib.suppress(NotFoundError):
                yield self.voice(name)

    def voice(self, name: str) -> Voice:
        """Read a voice's record. Raises NotFoundError with the nearest name, CheckpointError if it is bad."""
        self._check_known(name)
        path = self.folder / name / RECORD
        try:
            return _parsed(name, read_json(path, 1 << 20))
        except FileNotFoundError:
            raise self._unknown(name) from None
        except PermissionError as error:
            raise CheckpointError(f"{path}: cannot be read ({error.strerror}); add it again") from None
        except CheckpointError:
            raise
        except (KeyError, TypeError, ValueError, OverflowError):
            raise CheckpointError(f"{path}: not a voice's record; add it again") from None

    def prompt(self, name: str) -> Prompt:
        """Read a voice as reference speech, a reference a speaker. Raises as `voice`."""
        references = []
        for number, transcript in enumerate(self.voice(name).transcripts, start=1):
            try:
                samples, rate = read_audio_at_its_rate(self.folder / name / f"{number}.wav")
            except (UsageError, NotFoundError, PermissionError) as error:
                self._check_known(name)  # it may be removed meanwhile
                raise CheckpointError(f"voice: {name} is damaged, add it again: {error}") from error
            references.append(Reference(samples, transcript, sample_rate=rate, name=f"voice {name}"))
        return Prompt(tuple(references))

    def recording(self, name: str) -> Path:
        """Return the path of a voice's first recording."""
        return self.folder / name / "1.wav"

    def add(
        self,
        name: str,
        recordings: Sequence[tuple[np.ndarray, int]],
        transcripts: Sequence[str | None],
        consent: str,
    ) -> Voice:
        """Add a voice.

        recordings: (L,) samples and their rate in Hz, one a speaker.
        transcripts: one for each, or None.
        consent: a statement that the speakers agree; kept with the voice.
        Raises UsageError for a name, recording, transcript or consent that cannot be used, TakenError for a
        name that exists, ResourceError if the disk refuses.
        """
        if not NAME.fullmatch(name):
            raise UsageError(
                "name: use 1 to 64 letters, digits, dots, underscores, hyphens; begin with a letter or digit"
            )
        _check_text("consent", consent)
        if not recordings or len(recordings) != len(transcripts):
            raise UsageError("sample: give one recording or more, and a transcript for each or for none")
        for (samples, rate), transcript in zip(recordings, transcripts, strict=True):
            if transcript is not None:
                _check_text("transcript", transcript)
            check_stored(samples, rate, transcript, "sample")
        seconds = tuple(round(len(samples) / rate, 3) for samples, rate in recordings)
        voice = Voice(name, consent, int(time.time()), seconds, tuple(transcripts))
        try:
            self._write(voice, recordings)
        except OSError as error:
            if isinstance(error, ResourceError):
                raise
            raise ResourceError(f"voices: {self.folder} cannot be written ({error.strerror})") from error
        return voice

    def remove(self, name: str) -> None:
        """Remove a voice. Raises NotFoundError with the nearest name."""
        self._check_known(name)
        aside = Path(tempfile.mkdtemp(prefix=".old-", dir=self.folder))
        try:
            os.rename(self.folder / name, aside / name)
        except FileNotFoundError:  # another process was faster
            raise self._unknown(name) from None
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def _write(self, voice: Voice, recordings: Sequence[tuple[np.ndarray, int]]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._clear()
        new = Path(tempfile.mkdtemp(prefix=".new-", dir=self.folder))
        try:
            for number, (samples, rate) in enumerate(recordings, start=1):
                loud = max(1.0, float(np.abs(samples).max()))  # scaled rather than clipped
                write_audio(new / f"{number}.wav", samples / loud, rate)
            (new / RECORD).write_text(json_text(_record(voice)) + "\n", "utf-8")
            for path in (*new.iterdir(), new):
                sync(path)
            self._publish(new, voice.name)
        finally:
            shutil.rmtree(new, ignore_errors=True)

    def _publish(self, new: Path, name: str) -> None:
        """Give a finished folder its name; a name that is taken stays as it is."""
        try:
            os.rename(new, self.folder / name)
        except OSError:
            if not os.path.lexists(self.folder / name):
                raise
            raise TakenError(
                f"name: the voice {name} exists; remove it first, or choose another name"
            ) from None
        sync(self.folder)

    def _clear(self) -> None:
        """Remove what killed processes left."""
        for entry in os.scandir(self.folder):
            with contextlib.suppress(OSError):
                age = time.time() - entry.stat(follow_symlinks=False).st_mtime
                if _HIDDEN.fullmatch(entry.name) and age > _ABANDONED:
                    shutil.rmtree(entry.path)

    def _check_known(self, name: str) -> None:
        if not self._is_known(name):
            raise self._unknown(name)

    def _is_known(self, name: str) -> bool:
        return NAME.fullmatch(name) is not None and os.path.exists(self.folder / name / RECORD)

    def _unknown(self, name: str) -> NotFoundError:
        names = self.names()
        known = did_you_mean(name, names) or (
            f"there is {', '.join(names)}" if names else "there is none yet; add one first"
        )
        return NotFoundError(f"voice: {name} is not there; {known}")


def check_consent(word: str) -> None:
    """Raise UsageError unless the word says that the speaker agrees."""
    if word.strip().lower() not in AGREED:
        raise UsageError(f"consent: {word!r:.40} is not one of {', '.join(AGREED)}; the speaker has to agree")


def voices_folder() -> Path:
    """Return the user's folder of voices: $XDG_DATA_HOME/mlx-port/voices (or ~/.local/share/...)."""
    home = os.environ.get("XDG_DATA_HOME")
    return (Path(home) if home else Path.home() / ".local/share") / "mlx-port/voices"


def built_in(name: str, spec: Model, stored: Collection[str]) -> str | None:
    """Return the name of a built-in voice of the model; None for a stored one.

    Where both have the name, the stored one is used if the model takes recordings, with a warning.
    stored: names. An unknown name is taken as built in where the model has such voices: it refuses it.
    """
    if not spec.voices or (name in stored and name.lower() not in spec.voices):
        return None
    if name in stored and spec.references == 0:
        _LOG.warning(
            "voice: %s is also stored; %s, which takes no recordings, uses its own", name, spec.title
        )
    elif name in stored:
        _LOG.warning(
            "voice: %s is stored, and also one of %s's own; the stored one is used", name, spec.title
        )
        return None
    return name.lower()


def fitted(prompt: Prompt, name: str, spec: Model) -> Prompt:
    """Fit a voice to a model. Raises UsageError for one that the model cannot use."""
    count = len(prompt.references)
    given = f"voice: {name} has {counted(count, 'recording')}, "
    spec.check_takes_recording(given)
    if spec.references is not None and count > spec.references:
        raise UsageError(f"{given}{spec.title} takes {spec.references}")
    if spec.transcript == "unused":
        return Prompt(tuple(replace(reference, text=None) for reference in prompt.references))
    if spec.transcript == "needed" and any(reference.text is None for reference in prompt.references):
        raise UsageError(f"voice: {name} has no transcript, which {spec.title} needs; add it with one")
    return prompt


def _check_text(where: str, text: str) -> None:
    check_words(where, text)
    if len(text) > LONGEST_TEXT:
        raise UsageError(f"{where}: {len(text)} characters, at most {LONGEST_TEXT} are taken")


def _record(voice: Voice) -> dict[str, Any]:
    recordings = [
        {"seconds": seconds, "transcript": transcript}
        for seconds, transcript in zip(voice.seconds, voice.transcripts, strict=True)
    ]
    return {"version": 1, "consent": voice.consent, "created": voice.created, "recordings": recordings}


def _parsed(name: str, record: dict[str, Any]) -> Voice:
    recordings = record["recordings"]
    if record["version"] != 1 or not recordings:
        raise ValueError
    transcripts = tuple(recording["transcript"] for recording in recordings)
    if not all(said is None or isinstance(said, str) for said in transcripts):
        raise TypeError
    created = record["created"]
    seconds = tuple(float(recording["seconds"]) for recording in recordings)
    if not (isinstance(created, int) and all(0 < second <= LONGEST for second in (created, *seconds))):
        raise ValueError
    return Voice(name, str(record["consent"]), created, seconds, transcripts)
