"""Published checkpoints: the parts of one model, found by the contents of files. Needs no framework."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from converters.candidates import Candidate, scan
from converters.files import folders
from converters.files.hub import locate
from converters.maps import origin
from converters.maps.layouts import Found, Hints
from converters.maps.table import layouts, recognize
from converters.part import ModelPart as ModelPart
from converters.search import Goal, Search, is_codec
from tts_core import models
from tts_core.errors import CheckpointError, UsageError
from tts_core.voice.embedded import sources_of


@dataclass(frozen=True)
class Published:
    """The contents of the sources.

    model: one of tts_core.models.NAMES; None for requested parts without a model's root.
    parts: by kind, in the order in which they are written.
    ignored: file → why it was not used.
    """

    model: str | None
    parts: Mapping[str, ModelPart]
    ignored: Mapping[str, str]

    def check_fits(self) -> None:
        """Raise CheckpointError, with the root's folder, unless the parts of a model belong together."""
        if self.model is None:
            return
        configs = {kind: part.config for kind, part in self.parts.items()}
        documents = {kind: part.documents for kind, part in self.parts.items()}
        try:
            models.check_fits(self.model, configs, documents)
        except CheckpointError as fault:
            raise CheckpointError(f"{self.parts[self.model].files[0].parent}: {fault}") from None


def is_conversion(folder: Path) -> bool:
    """Return True for a folder whose weights another program wrote with MLX, by the first ones in it."""
    for files in folders.safetensors(folder):
        found = Found(folders.open_checkpoint(files))
        layout = recognize(list(found.checkpoint.shapes), found.json("config.json"))
        known = layouts().get(layout or "")
        return origin.is_conversion(found) or (known is not None and known.is_converted(found.checkpoint))
    return False


def open_published(
    sources: str | Path | Sequence[str | Path],
    *,
    codec: str | Path | None = None,
    cross_rope: bool | None = None,
    config: str | Path | None = None,
    include: Sequence[str] = (),
    revision: str | None = None,
    offline: bool = False,
    parts: Sequence[str] | None = None,
    flag: str = "--hf-path",
) -> Published:
    """Open the parts of one model from folders, files or hub ids, in any published layout or converted.

    sources: also "embedded", the voice of this package, unless something local has that name.
    codec: place of the codec; None searches the sources, the folders beside them, then the hub, as for other
    parts that several models share.
    cross_rope: None derives it from config.json.
    config: a JSON file with sizes that the tensors do not show.
    include: optional kinds of parts to open as well.
    revision: of hub ids among the sources.
    parts: requested kinds; None takes those of the model that the sources contain.
    flag: the caller's name for the sources, for messages.
    If a folder contains a model twice, safetensors are preferred to pickles, a whole file to the shards of
    its name, shards of an index to other files, then the folder to its subfolders; further copies are
    refused. No tensor is read.
    Raises NotFoundError listing every missing part; CheckpointError for files that are corrupt, unsafe or do
    not fit their configuration; UsageError for competing sources and for options that the model lacks.
    """
    given = [sources] if isinstance(sources, str | Path) else list(sources)
    given = [location for source in given for location in sources_of(source, with_codec=codec is None)]
    hints = Hints(cross_rope, None if config is None else locate(config, flag="--config").path)
    locations = [locate(source, flag=flag, revision=revision, offline=offline) for source in given]

    def in_sources(seen: Sequence[Candidate]) -> list[str]:
        kinds = Goal.of(seen, parts, include, flag).kinds
        return [kind for kind in kinds if codec is None or not is_codec(kind)]

    scanned = scan(locations, hints, in_sources)
    goal = Goal.of(scanned.candidates, parts, include, flag)
    search = Search(goal, scanned, hints, flag)
    search.take(scanned, in_sources(scanned.candidates))
    if codec is not None:
        there = locate(codec, flag="--codec", offline=offline)
        search.look(there, [kind for kind in goal.kinds if is_codec(kind)])
    else:
        search.look_beside(locations)
    search.fetch(offline=offline)
    _check_flags(goal.model, include, hints)
    search.check(given, locations)
    return Published(goal.model, {kind: search.found[kind] for kind in goal.kinds}, search.ignored)


def _check_flags(model: str | None, include: Sequence[str], hints: Hints) -> None:
    """Raise UsageError for flags that are for other models."""
    if model is None:
        return
    spec = models.MODELS[model]
    idle = [f"--include-{kind}" for kind in include if kind not in spec.extras]
    idle += [f"--{name.replace('_', '-')}" for name in hints.given() if name not in spec.hints]
    if idle:
        raise UsageError(f"{', '.join(idle)}: not for {spec.title}; leave it out")
