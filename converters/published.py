"""Published checkpoints: the parts of one model, found in whatever files hold them.

Needs neither framework, except PyTorch when a pickle has to be read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from converters.files.hub import locate
from converters.maps.layouts import Hints
from converters.part import Part as Part
from converters.search import Search
from tts_core import models
from tts_core.errors import CheckpointError


@dataclass(frozen=True)
class Published:
    """The contents of the sources.

    model: one of tts_core.models.NAMES, None for parts that were asked for one by one and of which none is a
    model's root. parts: by kind, in the order in which they are written. ignored: file → why it was not used.
    """

    model: str | None
    parts: Mapping[str, Part]
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
    """The parts of one model from folders, files or hub ids, in any published layout or converted by us.

    codec: where the codec is, if not in the sources; None falls back on the hub, as for other parts that
    several models share. cross_rope: None derives it from config.json. config: a JSON file with sizes that no
    tensor shows. include: kinds of parts that the model can do without.
    revision: of hub ids among the sources. parts: the kinds wanted; None takes those of the model that the
    sources are found to hold. flag: what the caller names the sources by, for the messages.
    A folder may hold a model twice: safetensors are preferred to pickles, then the folder to its subfolders,
    then the first by name. No tensor is read. Raises NotFoundError listing every part that is missing,
    CheckpointError for files that are corrupt, unsafe, or do not fit their configuration, UsageError for
    sources that compete, and for options that the model has no use for.
    """
    given = [sources] if isinstance(sources, str | Path) else list(sources)
    hints = Hints(cross_rope, None if config is None else locate(config, flag="--config").path)
    places = [locate(source, flag=flag, revision=revision, offline=offline) for source in given]
    search = Search(parts, include, hints, flag)
    search.look(places, without_codec=codec is not None)
    if codec is not None:
        search.look_for_codec(locate(codec, flag="--codec", offline=offline))
    search.fetch(offline=offline)
    search.check(given, places)
    return Published(search.model, search.in_order(), search.ignored)
