"""Search for a model's parts among files, and the message about missing ones."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from converters.files import folders
from converters.files.hub import Located, fetch
from converters.files.pickles import PICKLES
from converters.maps.layouts import Found, Hints, layouts, recognize
from converters.maps.origin import described, is_conversion
from converters.part import MisfitError, ModelPart, open_part
from tts_core import models
from tts_core.errors import CheckpointError, NotFoundError, SpeechError, UsageError
from tts_core.files.record import RECORD

_ADAPTER = re.compile(r"\.lora_[AB]\.")  # in the names of peft's tensors
MOST_BESIDE = 100  # folders beside a source that are searched


@dataclass(frozen=True)
class _Candidate:
    """Files with a known network. missing: the file that its configuration should be in."""

    kind: str
    layout: str
    found: Found
    place: Located
    missing: str | None

    @property
    def file(self) -> Path:
        return self.found.checkpoint.files[0]

    @property
    def is_pickle(self) -> bool:
        return self.file.suffix in PICKLES

    @property
    def label(self) -> str:
        return _label(self.file, self.place)


class Search:
    """Collector of one part of each wanted kind, and of the reasons why other files are not used.

    parts: wanted kinds; None takes those of the model that is found.
    include: its wanted extras.
    flag: the caller's name for the sources.
    """

    def __init__(
        self, parts: Sequence[str] | None, include: Sequence[str], hints: Hints, flag: str = "--hf-path"
    ):
        self.hints, self.flag = hints, flag
        self.found: dict[str, ModelPart] = {}
        self.ignored: dict[str, str] = {}
        self._parts, self._include = parts, include
        self._seen: list[_Candidate] = []  # in the last places searched
        self._kept: list[str] = []  # parts of a converted folder, extras included
        self._without_config: dict[str, _Candidate] = {}
        self._faults: list[SpeechError] = []
        self._foreign: list[str] = []  # conversions of other models, by other programs
        self.model = None if parts is None else _rooted(parts)

    @property
    def wanted(self) -> tuple[str, ...]:
        """Kinds to find; empty while the model is unknown."""
        if self._parts is not None:
            return tuple(self._parts)
        if self.model is None:
            return ()
        return models.model(self.model).wanted([*self._include, *self._kept])

    def look(self, places: Sequence[Located], *, without_codec: bool) -> None:
        """Search the sources. without_codec: the codec is given separately."""
        self._scan(places, without_codec=without_codec)
        self._kept = [each.kind for each in self._seen if folders.is_converted(each.found.folder)]
        self._take(self._open_kinds(without_codec))

    def look_for_codec(self, place: Located) -> None:
        """Search the place that is given for the codec."""
        codecs = [kind for kind in self.wanted if _is_codec(kind)]
        if codecs:
            self._look_for(codecs, place)

    def look_beside(self, places: Sequence[Located]) -> None:
        """Search the folders beside the sources if only the codec is missing, but no converted folder.

        A fault of such a folder only means that it is not used.
        """
        missing = self._missing()
        if self._kept or not missing or not all(map(_is_codec, missing)) or self._without_config:
            return
        ignored = dict(self.ignored)
        for folder in _beside(places):
            if kinds := self._missing():
                with contextlib.suppress(CheckpointError, NotFoundError):
                    self._look_for(kinds, Located(folder))
        self.ignored = ignored

    def fetch(self, *, offline: bool) -> None:
        """Fetch codecs from the hub if nothing else is missing."""
        missing = self._missing()
        if all(kind in models.CODECS for kind in missing):
            for kind in missing:
                flag = "--codec" if _is_codec(kind) else self.flag
                repository = str(models.network(kind).repository)
                try:
                    self._look_for([kind], fetch(repository, flag=flag, offline=offline))
                except NotFoundError as fault:
                    self._faults.append(fault)

    def check(self, given: Sequence[str | Path], places: Sequence[Located]) -> None:
        """Raise unless every wanted part was found, every place was needed and every flag had a use."""
        self._check_flags()
        if self._missing() or not self.wanted:
            raise self._error(given)
        idle = [place for place in places if not any(part.origin is place for part in self.found.values())]
        if idle:
            raise UsageError(
                f"{self.flag}: {idle[0].path} contains nothing that is not in the other sources; leave it out"
            )

    def _check_flags(self) -> None:
        if self.model is None:
            return
        spec = models.model(self.model)
        idle = [f"--include-{kind}" for kind in self._include if kind not in spec.extras]
        idle += [f"--{name.replace('_', '-')}" for name in self.hints.given() if name not in spec.hints]
        if idle:
            raise UsageError(f"{', '.join(idle)}: not for {spec.title}; leave it out")

    def in_order(self) -> dict[str, ModelPart]:
        """Return the parts in the order in which they are written."""
        return {kind: self.found[kind] for kind in self.wanted}

    def _missing(self) -> list[str]:
        return [kind for kind in self.wanted if kind not in self.found]

    def _left_out(self) -> set[str]:
        """Return the optional kinds that were not requested."""
        if self.model is None or self._parts is not None:
            return set()
        return {*models.model(self.model).extras} - {*self.wanted}

    def _open_kinds(self, without_codec: bool) -> list[str]:
        return [kind for kind in self.wanted if not (without_codec and _is_codec(kind))]

    def _look_for(self, kinds: Sequence[str], place: Located) -> None:
        self._seen = []
        self._scan([place], kinds=kinds)
        self._take(kinds)

    def _scan(
        self, places: Sequence[Located], *, kinds: Sequence[str] | None = None, without_codec: bool = False
    ) -> None:
        """Open every file; pickles of a folder only for kinds that no safetensors file contains."""
        for place in places:
            for files in folders.safetensors(place.path):
                self._see(files, place)
        for place in places:
            for file in folders.pickles(place.path):
                self._choose_model()
                needed = self._open_kinds(without_codec) if kinds is None else kinds
                usable = {each.kind for each in self._seen if each.missing is None and not each.is_pickle}
                if file != place.path and needed and usable.issuperset(needed):
                    self.ignored[_label(file, place)] = "all wanted parts are in safetensors files"
                    continue
                try:
                    self._see([file], place)
                except (CheckpointError, NotFoundError) as fault:
                    if file == place.path or isinstance(fault, MisfitError):
                        raise
                    self._faults.append(fault)
        self._choose_model()

    def _see(self, files: list[Path], place: Located) -> None:
        checkpoint = folders.open_checkpoint(files)
        if any(_ADAPTER.search(name) for name in checkpoint.shapes):
            self.ignored[_label(files[0], place)] = (
                "a LoRA adapter; merge it into its model (peft: merge_and_unload), and save that"
            )
            return
        found = Found(checkpoint, self.hints)
        config = found.json("config.json")
        try:
            layout = recognize(list(checkpoint.shapes), config)
        except CheckpointError as fault:
            raise CheckpointError(f"{found.folder}: {fault}") from None
        kind = models.kind_of(config) if layout == "mlx" else layouts()[layout].kind if layout else None
        if layout is None or kind is None:
            what = "its tensors are of no known model"
            if is_conversion(found):
                what = f"{described(found)}, which is not supported"
                self._foreign.append(f"{found.folder}: {what}")
            self.ignored[_label(files[0], place)] = what
            return
        missing = None if layout == "mlx" else layouts()[layout].missing(found)
        if missing and config and is_conversion(found):
            about = models.network(kind)
            raise CheckpointError(
                f"{found.folder}: {described(found, about.title)}: its {missing} is not the published one; "
                f"give a conversion that keeps it, or {about.repository}"
            )
        if layout != "mlx" and layouts()[layout].is_converted(checkpoint):
            layout = "mlx"
        if not config and checkpoint.metadata.get("format") == "mlx":  # a converted file: not to be guessed
            missing = "config.json"
        self._seen.append(_Candidate(kind, layout, found, place, missing))

    def _choose_model(self) -> None:
        """Set the model by the kinds that were found. Raises UsageError for two models."""
        if self._parts is not None or self.found:
            return
        owners: dict[str, _Candidate] = {}
        for candidate in self._seen:
            name = models.owner(candidate.kind)
            if name is not None:
                owners.setdefault(name, candidate)
        if len(owners) > 1:
            titles = [f"{models.model(name).title} in {candidate.file}" for name, candidate in owners.items()]
            raise UsageError(f"{self.flag}: two models, {' and '.join(titles)}; give the sources of one")
        self.model = next(iter(owners), None)
        if self.model is None:  # found a codec that only one model has
            held = {candidate.kind for candidate in self._seen}
            users = [
                name
                for name in models.NAMES
                if held & {*models.model(name).parts, *models.model(name).extras}
            ]
            self.model = users[0] if len(users) == 1 else None

    def _take(self, kinds: Sequence[str]) -> None:
        """Open one candidate of each kind."""
        for candidate in self._seen:
            kind, title = candidate.kind, models.network(candidate.kind).title
            if kind in self._left_out():
                self.ignored[candidate.label] = f"contains {title}; add it with --include-{kind}"
            elif kind not in kinds:
                self.ignored[candidate.label] = f"contains {title}, which is found elsewhere or not needed"
            elif kind in self.found and (
                self.found[kind].origin is not candidate.place
                or folders.are_rivals(self.found[kind].files[0], candidate.file)
            ):
                first = self.found[kind].files[0]
                raise UsageError(
                    f"{self.flag}: {first} and {candidate.file} both contain {title}; give one of them"
                )
            elif kind in self.found:
                first = self.found[kind].files[0]
                self.ignored[candidate.label] = f"{title} was already found in {first.name}"
            elif candidate.missing is not None:
                self._without_config.setdefault(kind, candidate)
            else:
                self.found[kind] = open_part(kind, candidate.layout, candidate.found, candidate.place)

    def _error(self, given: Sequence[str | Path]) -> SpeechError:
        broken = [fault for fault in self._faults if isinstance(fault, CheckpointError)]
        if broken and not self.wanted:  # nothing that could be read is of a model
            return CheckpointError("; ".join(map(str, broken)))
        if self._foreign and not self.wanted and not self._seen:
            titles = ", ".join(models.model(name).title for name in models.NAMES)
            return CheckpointError(f"{'; '.join(self._foreign)}; give one of {titles}")
        lacking = [self._missing()] if self.wanted else self._lacking()
        missing = ", or ".join(map(self._describe_all, lacking))
        if any(kinds and all(map(_is_codec, kinds)) for kinds in lacking):
            missing += "; give the codec's folder, file or hub id with --codec"
        where = ", ".join(str(source) for source in given)
        seen = [f"{name}: {why}" for name, why in self.ignored.items()]
        message = "; ".join([f"{where}: missing: {missing}", *map(self._reason, self._faults), *seen])
        return CheckpointError(message) if broken else NotFoundError(message)

    def _reason(self, fault: SpeechError) -> str:
        """Shorten the message of another place that was tried: no flag, and no second advice."""
        if isinstance(fault, CheckpointError):
            return str(fault)
        return str(fault).removeprefix("--codec: ").removeprefix(f"{self.flag}: ").partition("; ")[0]

    def _lacking(self) -> list[list[str]]:
        """List the missing kinds of each model that the files may belong to, or of every model."""
        held = {candidate.kind for candidate in self._seen}
        needed = [models.model(name).parts for name in models.NAMES]
        meant = [parts for parts in needed if held & {*parts}] or needed
        return [[kind for kind in parts if kind not in held] for parts in meant]

    def _describe_all(self, kinds: Sequence[str]) -> str:
        own = [kind for kind in kinds if kind not in models.CODECS]
        places = dict.fromkeys(str(models.network(kind).repository) for kind in own)
        where = f" (published: {', '.join(places)})" if places else ""
        return " and ".join(map(self._describe, kinds)) + where

    def _describe(self, kind: str) -> str:
        candidate = self._without_config.get(kind)
        if candidate is not None:
            return f"{candidate.missing} of {models.network(kind).title} beside {candidate.file}"
        return f"weights of {models.network(kind).title}"


def _rooted(parts: Sequence[str]) -> str | None:
    """Find the model whose root is among the parts."""
    return next((kind for kind in parts if kind in models.NAMES), None)


def _beside(places: Sequence[Located]) -> list[Path]:
    """List the folders beside the sources that are local, in the order of their names."""
    own = [(place.path if place.path.is_dir() else place.path.parent).resolve() for place in places]
    around = {folder.parent for folder, place in zip(own, places, strict=True) if place.repository is None}
    found = list[Path]()
    for folder in sorted(around):
        with contextlib.suppress(OSError):
            found += (one for one in folder.iterdir() if one.is_dir() and not (one / RECORD).exists())
    return sorted(one for one in found if one.resolve() not in own)[:MOST_BESIDE]


def _is_codec(kind: str) -> bool:
    """Return True for kinds that --codec names; vocoders and other decoders have other folders."""
    return models.network(kind).is_codec


def _label(file: Path, place: Located) -> str:
    return str(file.relative_to(place.path)) if place.path.is_dir() else file.name
