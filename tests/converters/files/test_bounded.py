"""Files that claim more than they hold: sparse ones, and lengths beyond any memory or index."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from converters.files.pickles import TorchCheckpoint
from tests.converters.files.opcodes import OLD_HEAD, START
from tests.tts_core.growth import peak_bytes
from tts_core.errors import CheckpointError
from tts_core.files.bounded import LARGEST_READ

SPARSE = 16 * LARGEST_READ  # bytes that take no place on a disk


def refused(path: Path) -> str:
    with pytest.raises(CheckpointError) as found:
        TorchCheckpoint(path)
    assert str(found.value).startswith(f"{path}: ")
    return str(found.value)


@pytest.mark.parametrize(
    "opcode",
    [b"X" + struct.pack("<I", SPARSE - 100), b"\x8b" + struct.pack("<i", SPARSE - 100), b"c", b"I", b"V"],
    ids=["BINUNICODE", "LONG4", "GLOBAL", "INT", "UNICODE"],
)
def test_an_argument_of_a_sparse_old_file_is_not_read(tmp_path, opcode):
    path = tmp_path / "old.pth"
    with path.open("wb") as file:
        file.write(OLD_HEAD + START + opcode)
        file.truncate(SPARSE)
    assert peak_bytes(lambda: refused(path)) < 3 * LARGEST_READ


def test_the_directory_of_a_sparse_zip_is_not_read(tmp_path):
    path, size = tmp_path / "new.pth", SPARSE - 26
    with path.open("wb") as file:
        file.write(b"PK\x03\x04")
        file.truncate(SPARSE - 22)
        file.seek(SPARSE - 22)
        file.write(struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 1, 1, size, 4, 0))
    assert peak_bytes(lambda: refused(path)) < 3 * LARGEST_READ


@pytest.mark.parametrize("length", [2**31, 2**40, 2**62, 2**63, 2**64 - 1])
@pytest.mark.parametrize(
    "opcode", [b"\x8d", b"\x8e", b"\x96"], ids=["BINUNICODE8", "BINBYTES8", "BYTEARRAY8"]
)
def test_a_few_bytes_that_claim_any_length(tmp_path, length, opcode):
    path = tmp_path / "old.pth"
    path.write_bytes(OLD_HEAD + START + opcode + struct.pack("<Q", length) + b"a")
    assert "refused: " in refused(path)
