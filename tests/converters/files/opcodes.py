"""Pickles written opcode by opcode, and zips as torch.save writes them around such a pickle."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Sequence
from pathlib import Path

START = b"\x80\x02"
# the beginning of a file of torch < 1.6: two pickles
OLD_HEAD = pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(1001, 2)
ORDERED = b"ccollections\nOrderedDict\n"
REBUILD = b"ctorch._utils\n_rebuild_tensor_v2\n"
ENCODE = b"c_codecs\nencode\n"


def text(content: str) -> bytes:
    """A string."""
    octets = content.encode("utf-8", "surrogatepass")
    return b"X" + len(octets).to_bytes(4, "little") + octets


def short(content: bytes) -> bytes:
    """A string as Python 2 writes it."""
    return b"U" + bytes([len(content)]) + content


def number(value: int) -> bytes:
    """An int, in the widest form that torch.save writes."""
    octets = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(octets)]) + octets


def sizes(values: Sequence[int]) -> bytes:
    """A tuple of ints."""
    return b"(" + b"".join(map(number, values)) + b"t"


def entries(*pairs: bytes) -> bytes:
    """A dict of keys and values in turn."""
    return b"}(" + b"".join(pairs) + b"u"


def used_again(levels: int) -> bytes:
    """A list of tuples, each of twice the tuple before: their hash takes 2 ** levels steps.

    The last one is stored as number `levels`.
    """
    made = b"](K\x01K\x02\x86q\x00"
    for level in range(levels):
        made += b"h" + bytes([level]) + b"h" + bytes([level]) + b"\x86q" + bytes([level + 1])
    return made + b"e"


def storage(key: str = "0", count: int = 4) -> bytes:
    """A storage of float32 numbers."""
    return (
        b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text(key) + text("cpu") + number(count) + b"tQ"
    )


def tensor(shape: Sequence[int] = (4,), strides: Sequence[int] = (1,), held: bytes = storage()) -> bytes:
    """A view of a storage."""
    return REBUILD + b"(" + held + b"K\x00" + sizes(shape) + sizes(strides) + b"\x89" + ORDERED + b")RtR"


def write_zip(path: Path, description: bytes, **storages: bytes) -> Path:
    """A file of torch.save. storages: by key, after an underscore."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x/data.pkl", description)
        archive.writestr("x/byteorder", "little")
        for key, content in ({"_0": bytes(16)} | storages).items():
            archive.writestr(f"x/data/{key.removeprefix('_')}", content)
        archive.writestr("x/version", "3\n")
    return path
