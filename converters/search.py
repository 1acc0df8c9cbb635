"""Search for a model's parts: in the sources, in the codec's place, beside the sources, then on the hub."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from converters.candidates import Candidate, Scan, scan
from converters.files import folders
from converters.files.hub import Located, fetch
from converters.maps.layouts import Hints
from converters.part import ModelPart, open_part
from tts_core import models
from tts_core.errors import CheckpointError, NotFoundError, SpeechError, UsageError
from tts_core.files.record import RECORD

MOST_BESIDE = 100  # folders beside a source that are searched


@dataclass(frozen=True)
class Goal:
    """Kinds of parts to find. model: None if it is unknown.  left_out: its extras that are not wanted."""

    model: str | None
    kinds: tuple[str, ...]
    left_out: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls, seen: Sequence[Candidate], parts: Sequence[str] | None, include: Sequence[str], flag: str
    ) -> Goal:
        """Want some parts, or those of the model in the files, with all extras of a converted folder.

        include: wanted extras. Raises UsageError for two models.
        """
        if parts is not None:
            return cls(next((kind for kind in parts if kind in models.NAMES), None), tuple(parts))
        model = _model_in(seen, flag)
        if model is None:
            return cls(None, ())
        converted = [candidate.kind for candidate in seen if folders.is_converted(candidate.found.folder)]
        kinds = models.MODELS[model].wanted([*include, *converted])
        return cls(model, kinds, frozenset(models.MODELS[model].extras) - {*kinds})


@dataclass
class Search:
    """One part of each wanted kind, so far, and why other files are not used.

    sources: what they contain.
    flag: the caller's name for them.
    unusable: candidates without their configuration, by kind.
    """

    goal: Goal
    sources: Scan
    hints: Hints
    flag: str
    found: dict[str, ModelPart] = field(default_factory=dict)
    ignored: dict[str, str] = field(default_factory=dict)
    faults: list[SpeechError] = field(default_factory=list)
    unusable: dict[str, Candidate] = field(default_factory=dict)

    @property
    def missing(self) -> list[str]:
        """Kinds that are not found yet."""
        return [kind for kind in self.goal.kinds if kind not in self.found]

    def look(self, location: Located, kinds: Sequence[str]) -> None:
        """Search a further place."""
        if kinds:
            self.take(scan([location], self.hints, lambda _: kinds), kinds)

    def look_beside(self, locations: Sequence[Located]) -> None:
        """Search the folders beside the sources if only the codec is missing, but no converted folder.

        A fault of such a folder only means that it is not used.
        """
        is_converted = any(
            folders.is_converted(candidate.found.folder) for candidate in self.sources.candidates
        )
        if is_converted or self.unusable or not all(map(is_codec, self.missing)):
            return
        ignored = dict(self.ignored)
        for folder in _beside(locations) if self.missing else ():
            with contextlib.suppress(CheckpointError, NotFoundError):
                self.look(Located(folder), self.missing)
        self.ignored = ignored

    def fetch(self, *, offline: bool) -> None:
        """Fetch codecs from the hub if nothing else is missing."""
        if not all(kind in models.CODECS for kind in self.missing):
            return
        for kind in self.missing:
            flag = "--codec" if is_codec(kind) else self.flag
            repository = str(models.network(kind).repository)
            try:
                self.look(fetch(repository, flag=flag, offline=offline), [kind])
            except NotFoundError as fault:
                self.faults.append(fault)

    def take(self, scanned: Scan, kinds: Sequence[str]) -> None:
        """Open one candidate of each kind. Raises UsageError for rivals."""
        self.ignored |= scanned.ignored
        self.faults += scanned.faults
        for candidate in scanned.candidates:
            kind, title = candidate.kind, models.network(candidate.kind).title
            if kind in self.goal.left_out:
                self.ignored[candidate.label] = f"contains {title}; add it with --include-{kind}"
            elif kind not in kinds:
                self.ignored[candidate.label] = f"contains {title}, which is found elsewhere or not needed"
            elif kind in self.found:
                part = self.found[kind]
                first = part.files[0]
                if part.origin is not candidate.location or folders.are_rivals(first, candidate.file):
                    raise UsageError(
                        f"{self.flag}: {first} and {candidate.file} both contain {title}; give one of them"
                    )
                self.ignored[candidate.label] = f"{title} was already found in {first.name}"
            elif candidate.missing is not None:
                self.unusable.setdefault(kind, candidate)
            else:
                self.found[kind] = open_part(kind, candidate.layout, candidate.found, candidate.location)

    def check(self, given: Sequence[str | Path], locations: Sequence[Located]) -> None:
        """Raise unless every wanted part was found and every place was needed."""
        if self.missing or not self.goal.kinds:
            raise self._error(given)
        idle = [
            location
            for location in locations
            if not any(part.origin is location for part in self.found.values())
        ]
        if idle:
            raise UsageError(
                f"{self.flag}: {idle[0].path} contains nothing that is not in the other sources; leave it out"
            )

    def _error(self, given: Sequence[str | Path]) -> SpeechError:
        broken = [fault for fault in self.faults if isinstance(fault, CheckpointError)]
        seen, wanted = self.sources.candidates, self.goal.kinds
        if broken and not wanted:  # nothing that could be read is of a model
            return CheckpointError("; ".join(map(str, broken)))
        if self.sources.foreign and not wanted and not seen:
            titles = ", ".join(models.MODELS[name].title for name in models.NAMES)
            return CheckpointError(f"{'; '.join(self.sources.foreign)}; give one of {titles}")
        lacking = [self.missing] if wanted else _lacking({candidate.kind for candidate in seen})
        missing = ", or ".join(map(self._described, lacking))
        if any(kinds and all(map(is_codec, kinds)) for kinds in lacking):
            missing += "; give the codec's folder, file or hub id with --codec"
        where = ", ".join(str(source) for source in given)
        notes = [f"{name}: {why}" for name, why in self.ignored.items()]
        message = "; ".join([f"{where}: missing: {missing}", *map(self._reason, self.faults), *notes])
        return CheckpointError(message) if broken else NotFoundError(message)

    def _reason(self, fault: SpeechError) -> str:
        """Shorten the message of another place that was tried: no flag, and no second advice."""
        if isinstance(fault, CheckpointError):
            return str(fault)
        return str(fault).removeprefix("--codec: ").removeprefix(f"{self.flag}: ").partition("; ")[0]

    def _described(self, kinds: Sequence[str]) -> str:
        """Describe missing parts, and where models' own are published."""
        parts = []
        for kind in kinds:
            network, candidate = models.network(kind), self.unusable.get(kind)
            what = "weights of" if candidate is None else f"{candidate.missing} of"
            parts.append(
                f"{what} {network.title}" + ("" if candidate is None else f" beside {candidate.file}")
            )
        own = [str(models.network(kind).repository) for kind in kinds if kind not in models.CODECS]
        where = f" (published: {', '.join(dict.fromkeys(own))})" if own else ""
        return " and ".join(parts) + where


def is_codec(kind: str) -> bool:
    """Return True for kinds that --codec names; vocoders and other decoders have other folders."""
    return models.network(kind).is_codec


def _model_in(seen: Sequence[Candidate], flag: str) -> str | None:
    """Find the model of some files, or the only one that has their codec."""
    owners: dict[str, Candidate] = {}
    for candidate in seen:
        name = models.owner(candidate.kind)
        if name is not None:
            owners.setdefault(name, candidate)
    if len(owners) > 1:
        titles = [f"{models.MODELS[name].title} in {owner.file}" for name, owner in owners.items()]
        raise UsageError(f"{flag}: two models, {' and '.join(titles)}; give the sources of one")
    if owners:
        return next(iter(owners))
    held = {candidate.kind for candidate in seen}
    specs = {name: models.MODELS[name] for name in models.NAMES}
    users = [name for name, spec in specs.items() if held & {*spec.parts, *spec.extras}]
    return users[0] if len(users) == 1 else None


def _lacking(held: set[str]) -> list[list[str]]:
    """List the missing kinds of each model that the files may belong to, or of every model."""
    needed = [models.MODELS[name].parts for name in models.NAMES]
    meant = [parts for parts in needed if held & {*parts}] or needed
    return [[kind for kind in parts if kind not in held] for parts in meant]


def _beside(locations: Sequence[Located]) -> list[Path]:
    """List the folders beside the sources that are local, in the order of their names."""
    own = [
        (location.path if location.path.is_dir() else location.path.parent).resolve()
        for location in locations
    ]
    around = {
        folder.parent for folder, location in zip(own, locations, strict=True) if location.repository is None
    }
    found = list[Path]()
    for folder in sorted(around):
        with contextlib.suppress(OSError):
            found += (path for path in folder.iterdir() if path.is_dir() and not (path / RECORD).exists())
    return sorted(item for item in found if item.resolve() not in own)[:MOST_BESIDE]
