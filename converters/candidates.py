"""Files of a known network, recognized by their tensors, and why others are of no use."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from converters.files import folders
from converters.files.hub import Located
from converters.files.pickles import PICKLES
from converters.maps.layouts import Found, Hints
from converters.maps.origin import described, is_conversion
from converters.maps.table import layouts, recognize
from converters.part import MisfitError
from tts_core import models
from tts_core.errors import CheckpointError, NotFoundError, SpeechError

_ADAPTER = re.compile(r"\.lora_[AB]\.")  # in the names of peft's tensors


@dataclass(frozen=True)
class Candidate:
    """Files with a known network. missing: the file that its configuration should be in."""

    kind: str
    layout: str
    found: Found
    location: Located
    missing: str | None

    @property
    def file(self) -> Path:
        """The first of its files."""
        return self.found.checkpoint.files[0]

    @property
    def label(self) -> str:
        """Its name in messages."""
        return _label(self.file, self.location)


@dataclass
class Scan:
    """All files of some places.

    ignored: file → why it is of no use.
    faults: of pickles that cannot be read.
    foreign: conversions of other models, by other programs.
    """

    candidates: list[Candidate] = field(default_factory=list)
    ignored: dict[str, str] = field(default_factory=dict)
    faults: list[SpeechError] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    def see(self, files: list[Path], location: Located, hints: Hints) -> None:
        """Recognize files that belong together. Raises CheckpointError for broken ones."""
        checkpoint = folders.open_checkpoint(files)
        found, label = Found(checkpoint, hints), _label(files[0], location)
        if any(_ADAPTER.search(name) for name in checkpoint.shapes):
            self.ignored[label] = (
                "a LoRA adapter; merge it into its model (peft: merge_and_unload), and save that"
            )
            return
        config = found.json("config.json")
        try:
            layout = recognize(list(checkpoint.shapes), config)
        except CheckpointError as fault:
            raise CheckpointError(f"{found.folder}: {fault}") from None
        kind = models.kind_of(config) if layout == "mlx" else layouts()[layout].kind if layout else None
        if layout is None or kind is None:
            self.ignored[label] = "its tensors are of no known model"
            if is_conversion(found):
                self.ignored[label] = f"{described(found)}, which is not supported"
                self.foreign.append(f"{found.folder}: {self.ignored[label]}")
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
        self.candidates.append(Candidate(kind, layout, found, location, missing))


def scan(
    locations: Sequence[Located], hints: Hints, needed: Callable[[Sequence[Candidate]], Sequence[str]]
) -> Scan:
    """Open every file; pickles of a folder only for kinds that no safetensors file contains.

    needed: kinds that are looked for, by the candidates so far.
    Raises CheckpointError for a broken file, but not for a pickle of a folder.
    """
    found = Scan()
    for location in locations:
        for files in folders.safetensors(location.path):
            found.see(files, location, hints)
    for location in locations:
        for file in folders.pickles(location.path):
            kinds = needed(found.candidates)
            usable = {
                candidate.kind
                for candidate in found.candidates
                if candidate.missing is None and candidate.file.suffix not in PICKLES
            }
            if file != location.path and kinds and usable.issuperset(kinds):
                found.ignored[_label(file, location)] = "all wanted parts are in safetensors files"
                continue
            try:
                found.see([file], location, hints)
            except (CheckpointError, NotFoundError) as fault:
                if file == location.path or isinstance(fault, MisfitError):
                    raise
                found.faults.append(fault)
    return found


def _label(file: Path, location: Located) -> str:
    return str(file.relative_to(location.path)) if location.path.is_dir() else file.name
