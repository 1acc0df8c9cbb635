"""Published checkpoints: each file recognised by its tensors' names, planned strictly, read tensor by tensor.

Needs neither framework, except PyTorch when a pickle has to be read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar, cast

import numpy as np

from converters.dtypes import FLOAT_NAMES, FLOATS
from converters.hub import Located, fetch, locate
from converters.maps import dac_descript, dac_transformers, dia_nari, dia_transformers, mlx
from converters.rules import Move, dropped, plan
from converters.sources import PICKLES, Checkpoint, open_checkpoint, read_index, read_json
from tts_core import dac, dia, dia_shapes
from tts_core.converted import FORMAT_VERSION, without_envelope
from tts_core.errors import CheckpointError, NotFoundError, SpeechError, UsageError
from tts_core.sampling import DEFAULTS_0626, DEFAULTS_V01

DAC_REPOSITORY = "descript/dac_44khz"


class Layout(NamedTuple):
    """A published layout: the model that it holds, and its map."""

    kind: str
    names: str  # pattern that the names of its tensors start with
    rules: Callable[[Any], list]


LAYOUTS = {
    "dia_nari": Layout("dia", dia_nari.NAMES, dia_nari.rules),
    "dia_transformers": Layout("dia", dia_transformers.NAMES, dia_transformers.rules),
    "dac_descript": Layout("dac", dac_descript.NAMES, dac_descript.rules),
    "dac_transformers": Layout("dac", dac_transformers.NAMES, dac_transformers.rules),
}
SHAPES = {"dia": dia_shapes.parameter_shapes, "dac": dac.parameter_shapes}
TITLES = {"dia": "Dia", "dac": "DAC (the codec)"}


Config = TypeVar("Config", dia.DiaConfig, dac.DacConfig)


@dataclass(frozen=True)
class Part(Generic[Config]):
    """One network of a checkpoint, planned and ready to be read under canonical names."""

    kind: str  # "dia" or "dac"
    layout: str  # a key of LAYOUTS, or "mlx" for a folder that we converted
    config: Config
    dtype: str  # of most of its numbers, as they lie in the files
    origin: Located
    checkpoint: Checkpoint = field(repr=False)
    moves: Mapping[str, Move] = field(repr=False)
    dropped: Mapping[str, str] = field(repr=False)  # source name → why
    quantization: Mapping[str, Any] | None = None  # as config.json has it

    @property
    def files(self) -> list[Path]:
        """The files that hold its tensors."""
        return list(self.checkpoint.files)

    def names(self) -> list[str]:
        """Canonical names in the network's order."""
        return list(self.moves)

    def shape(self, name: str) -> tuple[int, ...]:
        """Of a canonical tensor in PyTorch's axis order."""
        return self.moves[name].shape

    def read(self, name: str) -> np.ndarray:
        """One canonical tensor: float32, C-contiguous, PyTorch's axis order, dequantised."""
        move = self.moves[name]
        return np.ascontiguousarray(
            move.how.apply(*[self.checkpoint.read(source) for source in move.sources])
        )


@dataclass(frozen=True)
class Published:
    """What the sources hold. parts: by kind. ignored: file → why it was not used."""

    parts: Mapping[str, Part]
    ignored: Mapping[str, str]

    @property
    def dia(self) -> Part[dia.DiaConfig]:
        """The language model. KeyError if it was not wanted."""
        return self.parts["dia"]

    @property
    def codec(self) -> Part[dac.DacConfig]:
        """The codec. KeyError if it was not wanted."""
        return self.parts["dac"]


def open_published(
    sources: str | Path | Sequence[str | Path],
    *,
    codec: str | Path | None = None,
    cross_rope: bool | None = None,
    revision: str | None = None,
    offline: bool = False,
    parts: Sequence[str] = ("dia", "dac"),
) -> Published:
    """Dia and its codec from folders, files or hub ids, in any published layout or converted by us.

    codec: where DAC is, if not in the sources; None falls back on the hub's descript/dac_44khz.
    cross_rope: None derives it from config.json's schema. revision: of hub ids among the sources.
    parts: the networks wanted.
    A folder may hold a model twice: safetensors are preferred to pickles, then the folder to its subfolders,
    then the first by name. No tensor is read. Raises NotFoundError listing every part that is missing,
    CheckpointError for files that are corrupt, unsafe, or do not fit their configuration, UsageError for
    sources that compete.
    """
    given = [sources] if isinstance(sources, str | Path) else list(sources)
    wanted = [kind for kind in parts if kind != "dac" or codec is None]
    search = _Search(wanted, cross_rope)
    places = [locate(source, flag="--hf-path", revision=revision, offline=offline) for source in given]
    search.look(places)
    if codec is not None and "dac" in parts:
        search.wanted = ["dac"]
        search.look([locate(codec, flag="--codec", offline=offline)])
    elif "dac" in wanted and list(search.missing(parts)) == ["dac"]:
        try:
            search.look([fetch(DAC_REPOSITORY, flag="--codec", offline=offline)])
        except NotFoundError as fault:
            search.faults.append(fault)
    missing = search.missing(parts)
    if missing:
        raise search.error(given, missing)
    idle = [place for place in places if not any(part.origin is place for part in search.found.values())]
    if idle:
        raise UsageError(f"--hf-path: {idle[0].path} adds nothing that is not found elsewhere; leave it out")
    return Published(search.found, search.ignored)


class _Search:
    """Collects one part of each wanted kind, and why other files were left alone."""

    def __init__(self, wanted: list[str], cross_rope: bool | None):
        self.wanted = wanted
        self.cross_rope = cross_rope
        self.found: dict[str, Part] = {}
        self.without_config: dict[str, Path] = {}  # kind → weights whose config.json is missing
        self.ignored: dict[str, str] = {}
        self.faults: list[SpeechError] = []

    def missing(self, kinds: Sequence[str]) -> list[str]:
        return [kind for kind in kinds if kind not in self.found]

    def look(self, places: list[Located]) -> None:
        for place in places:
            for files in _safetensors(place.path):
                self._consider(files, place)
        for place in places:  # pickles of a folder only for what no safetensors file holds
            for file in _pickles(place.path):
                if file != place.path and not self.missing(self.wanted):
                    self.ignored[_label(file, place)] = "everything wanted was found in safetensors files"
                    continue
                try:
                    self._consider([file], place)
                except (CheckpointError, NotFoundError) as fault:
                    if file == place.path or isinstance(fault, _MisfitError):
                        raise
                    self.faults.append(fault)

    def _consider(self, files: list[Path], place: Located) -> None:
        label = _label(files[0], place)
        checkpoint = open_checkpoint(files)
        config_path = files[0].parent / "config.json"
        config = read_json(config_path) if config_path.is_file() else {}
        layout = _layout(checkpoint.shapes, config)
        kind = config.get("model_type", "") if layout == "mlx" else LAYOUTS[layout].kind if layout else ""
        if kind not in SHAPES:
            self.ignored[label] = "its tensors are of no model known"
        elif kind not in self.wanted:
            self.ignored[label] = f"holds {TITLES[kind]}, which is taken from elsewhere or not wanted"
        elif kind in self.found and self.found[kind].origin is not place:
            first = self.found[kind].files[0]
            raise UsageError(f"--hf-path: {first} and {files[0]} both hold {TITLES[kind]}; give one of them")
        elif kind in self.found:
            self.ignored[label] = f"{TITLES[kind]} was already found in {self.found[kind].files[0].name}"
        elif not config and "kwargs" not in checkpoint.metadata:
            self.without_config.setdefault(kind, files[0])
        else:
            self.found[kind] = _part(kind, str(layout), checkpoint, config, place, self.cross_rope)

    def error(self, given: Sequence[str | Path], missing: list[str]) -> SpeechError:
        parts = []
        for kind in missing:
            weights = self.without_config.get(kind)
            remedy = "; give its folder, file or hub id with --codec" if kind == "dac" else ""
            what = (
                f"config.json of {TITLES[kind]} beside {weights}"
                if weights
                else f"weights of {TITLES[kind]}{remedy}"
            )
            parts.append(what)
        where = ", ".join(str(source) for source in given)
        seen = [f"{name}: {why}" for name, why in self.ignored.items()]
        notes = [str(fault) for fault in self.faults] + seen
        message = f"{where}: missing: {' and '.join(parts)}" + (f" ({'; '.join(notes)})" if notes else "")
        broken = any(isinstance(fault, CheckpointError) for fault in self.faults)
        return CheckpointError(message) if broken else NotFoundError(message)


class _MisfitError(CheckpointError):
    """A recognised model whose tensors or configuration do not fit: no other file is tried in its place."""


def _part(
    kind: str,
    layout: str,
    checkpoint: Checkpoint,
    config: Mapping[str, Any],
    place: Located,
    cross_rope: bool | None,
) -> Part:
    folder, file = checkpoint.files[0].parent, checkpoint.files[0]
    try:
        read: Any  # of the kind that `kind` says
        if kind == "dia":
            read = _read_dia(config, folder, cross_rope)
        else:
            read = _read_dac(config, checkpoint.metadata)
        targets = SHAPES[kind](read)
        quantization = config.get("quantization") if layout == "mlx" else None
        if layout == "mlx":
            rules = mlx.rules(targets, checkpoint.shapes.keys(), quantization)
        else:
            rules = LAYOUTS[layout].rules(read)
        moves = plan(rules, checkpoint.shapes, targets, what=str(file))
        dtype = FLOAT_NAMES[FLOATS[config["dtype"]]] if layout == "mlx" else _main_dtype(checkpoint)
    except CheckpointError as fault:
        message = str(fault)
        raise _MisfitError(message if str(folder) in message else f"{folder}: {message}") from None
    except (TypeError, KeyError, AttributeError, ValueError, ZeroDivisionError) as fault:
        raise _MisfitError(
            f"{folder}: {TITLES[kind]}'s configuration is not understood: {fault!r}"
        ) from fault
    _check_types(checkpoint, moves, quantized=quantization is not None)
    return Part(
        kind,
        layout,
        cast(Any, read),
        dtype,
        place,
        checkpoint,
        {move.target: move for move in moves},
        dropped(rules, checkpoint.shapes),
        quantization,
    )


def _layout(shapes: Mapping[str, Any], config: Mapping[str, Any]) -> str | None:
    """The layout that most of the tensors' names belong to, and at least half; "mlx" by config.json."""
    written = config.get("weights_layout")
    if written is not None:
        if written != "mlx" or config.get("format_version") != FORMAT_VERSION:
            raise CheckpointError(
                f"config.json: weights_layout {written!r}, format_version {config.get('format_version')!r}: "
                "this folder was made by another version; convert the published model again"
            )
        return "mlx"
    counts = {
        name: sum(bool(re.match(layout.names, each)) for each in shapes) for name, layout in LAYOUTS.items()
    }
    best = max(counts, key=counts.__getitem__)
    return best if counts[best] and 2 * counts[best] >= len(shapes) else None


def _read_dia(config: Mapping[str, Any], folder: Path, cross_rope: bool | None) -> dia.DiaConfig:
    if "weights_layout" not in config:
        generation = folder / "generation_config.json"
        return dia.read_published(
            config, read_json(generation) if generation.is_file() else None, cross_rope=cross_rope
        )
    read = dia.read_converted(without_envelope(config))
    if cross_rope in (None, read.cross_rope):
        return read
    return replace(read, cross_rope=cross_rope, sampling=DEFAULTS_V01 if cross_rope else DEFAULTS_0626)


def _read_dac(config: Mapping[str, Any], metadata: Mapping[str, Any]) -> dac.DacConfig:
    """The checkpoint's own metadata rules over any config.json."""
    if isinstance(metadata.get("kwargs"), Mapping):
        return dac.read_descript(metadata["kwargs"])
    if "weights_layout" in config:
        return dac.read_converted(without_envelope(config))
    return dac.read_descript(config) if "encoder_rates" in config else dac.read_transformers(config)


def _main_dtype(checkpoint: Checkpoint) -> str:
    """Of most of its numbers; float32 for what is wider or no float."""
    sizes = Counter[str]()
    for name, shape in checkpoint.shapes.items():
        sizes[checkpoint.dtypes[name]] += prod(shape)
    dtype = FLOAT_NAMES.get(max(sizes, key=sizes.__getitem__))
    return dtype if dtype in ("bfloat16", "float16") else "float32"


def _check_types(checkpoint: Checkpoint, moves: Sequence[Move], *, quantized: bool) -> None:
    strange = [
        f"{name} ({checkpoint.dtypes[name] or 'unknown type'})"
        for move in moves
        for name in move.sources
        if checkpoint.dtypes[name] not in FLOAT_NAMES and not (quantized and len(move.sources) > 1)
    ]
    if strange:
        raise _MisfitError(f"{checkpoint.files[0]}: not floating point: {', '.join(strange[:20])}")


def _label(file: Path, place: Located) -> str:
    return str(file.relative_to(place.path)) if place.path.is_dir() else file.name


def _safetensors(source: Path) -> Iterator[list[Path]]:
    """Groups of files that belong together, in the order in which they are preferred."""
    if source.is_file():
        if source.name.endswith(".safetensors.index.json"):
            yield read_index(source)
        elif source.suffix == ".safetensors":
            shards = [files for index in _indexes(source.parent) if source in (files := read_index(index))]
            yield shards[0] if shards else [source]
        elif source.suffix not in PICKLES:
            raise CheckpointError(
                f"{source}: not a weights file; give .safetensors, .pth, or the folder of the model"
            )
        return
    for folder in _folders(source):
        groups = [read_index(index) for index in _indexes(folder)]
        sharded = {file for group in groups for file in group}
        single = (file for file in sorted(folder.glob("*.safetensors")) if not file.is_dir())
        yield from ([file] for file in single if file not in sharded)
        yield from groups


def _pickles(source: Path) -> Iterator[Path]:
    if source.is_file():
        yield from [source] if source.suffix in PICKLES else []
        return
    for folder in _folders(source):
        yield from (file for file in sorted(folder.iterdir()) if file.suffix in PICKLES and file.is_file())


def _folders(source: Path) -> list[Path]:
    return [
        source,
        *sorted(path for path in source.iterdir() if path.is_dir() and not path.name.startswith(".")),
    ]


def _indexes(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors.index.json"))
