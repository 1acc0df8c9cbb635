"""Weights files of a source (a file, or a folder with its subfolders) in order of preference."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from converters.files.pickles import PICKLES, TorchCheckpoint
from converters.files.readers import Checkpoint, SafetensorsCheckpoint, read_index
from tts_core.config import FORMAT_VERSION
from tts_core.errors import CheckpointError
from tts_core.files.json_object import read_json
from tts_core.files.record import RECORD, Record

_SHARD = re.compile(r"(?P<name>.+)-\d{5}-of-(?P<total>\d{5})\.\w+")


def safetensors(source: Path) -> Iterator[list[Path]]:
    """Yield groups of safetensors files that belong together."""
    if not source.is_dir():
        if source.name.endswith(".safetensors.index.json"):
            yield read_index(source)
        elif source.suffix == ".safetensors" and is_converted(source.parent):
            yield converted(source.parent)
        elif source.suffix == ".safetensors":
            groups = [read_index(index) for index in _indexes(source.parent)]
            groups += _without_index([source], source.parent)
            yield next(files for files in groups if source in files)
        elif source.suffix not in PICKLES:
            raise CheckpointError(
                f"{source}: not a weights file; give .safetensors, {', '.join(PICKLES)}, "
                "or the folder of the model"
            )
        return
    for folder in _folders(source):
        if is_converted(folder):
            yield converted(folder)
            continue
        groups = [read_index(index) for index in _indexes(folder)]
        sharded = {file for group in groups for file in group}
        yield from groups  # before single files: a copy must not replace the shards
        single = (file for file in sorted(folder.glob("*.safetensors")) if not file.is_dir())
        yield from _without_index(
            [file for file in single if file not in sharded and not file.name.startswith("._")], folder
        )


def _without_index(files: Sequence[Path], folder: Path) -> list[list[Path]]:
    """Group files that no index lists: those that are whole, then the shards of a set.

    Shards beside a whole file of their name are left over, and come one by one. Raises CheckpointError for
    a set that is not complete.
    """
    groups = [[file] for file in files if not _SHARD.fullmatch(file.name)]
    for file in files:
        shard = _SHARD.fullmatch(file.name)
        if shard is None or any(file in group for group in groups):
            continue
        total = shard["total"]
        there = sorted(folder.glob(f"{glob.escape(shard['name'])}-*-of-{total}{file.suffix}"))
        if _whole_of(file, shard).is_file():
            groups.append([file])
        elif len(there) == int(total):
            groups.append(there)
        else:
            raise CheckpointError(
                f"{file}: one of {int(total)} shards, {len(there)} is there; fetch all of them"
            )
    return groups


def _whole_of(file: Path, shard: re.Match[str]) -> Path:
    """Name the file that a shard would be of, if it were whole."""
    return file.with_name(f"{shard['name']}{file.suffix}")


def is_converted(folder: Path) -> bool:
    """Return True if convert-weights wrote a folder in this format, by its config.json or its model's."""
    return _says_converted(folder) or (
        (folder.parent / RECORD).exists()
        and _says_converted(folder.parent)
        and folder.name in Record.read(folder.parent).parts()
    )


def _says_converted(folder: Path) -> bool:
    config = read_json(folder / "config.json") if (folder / "config.json").exists() else {}
    return config.get("weights_layout") == "mlx" and config.get("format_version") == FORMAT_VERSION


def converted(folder: Path) -> list[Path]:
    """List the weights of a converted folder, or of a part of one, as its record names them.

    Raises what `tts_core.files.record.Record` raises.
    """
    is_part = not (folder / RECORD).exists() and (folder.parent / RECORD).exists()
    record = Record.read(folder.parent if is_part else folder)
    return record.weights(folder.name if is_part else "")


def are_rivals(first: Path, other: Path) -> bool:
    """Return True if neither of two files is preferred: one folder, one format, `first` in no index, and
    not the whole file that `other` is a shard of.
    """
    if (shard := _SHARD.fullmatch(other.name)) and first == _whole_of(other, shard):
        return False
    alike = first.parent == other.parent and (first.suffix in PICKLES) == (other.suffix in PICKLES)
    return alike and not any(first in read_index(index) for index in _indexes(first.parent))


def pickles(source: Path) -> Iterator[Path]:
    """Yield the files with a suffix of torch pickles."""
    if not source.is_dir():
        yield from [source] if source.suffix in PICKLES else []
        return
    for folder in _folders(source):
        yield from (file for file in sorted(folder.iterdir()) if file.suffix in PICKLES and not file.is_dir())


def open_checkpoint(files: Sequence[Path]) -> Checkpoint:
    """Open one pickle, or safetensors files that belong together."""
    if files[0].suffix not in PICKLES:
        return SafetensorsCheckpoint(files)
    if shard := _SHARD.fullmatch(files[0].name):
        raise CheckpointError(
            f"{files[0]}: one of {int(shard['total'])} shards, which are read as safetensors only; "
            "load the model with its own code and save it again"
        )
    return TorchCheckpoint(files[0])


def _folders(source: Path) -> list[Path]:
    return [
        source,
        *sorted(path for path in source.iterdir() if path.is_dir() and not path.name.startswith(".")),
    ]


def _indexes(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors.index.json"))
