"""The beginning of files of torch < 1.6, and what other files without a zip are."""

from __future__ import annotations

from io import FileIO

from converters.files.unpickle import PROTOCOLS, SAVE_AGAIN, other_protocol
from tts_core.errors import CheckpointError

# two pickles, of a number and of the format's version; only the protocol's number differs
_MAGIC = b"\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
_HEADS = {bytes([0x80, number]) + _MAGIC + bytes([0x80, number]) + b"M\xe9\x03." for number in PROTOCOLS}
_LENGTH = len(min(_HEADS))
_TEXT_MAGIC = b"L119547037146038801333356L"  # as protocols 0 and 1 write the number
_NEW = 40  # bytes in which later protocols write it
_TAR, _TAR_AT = b"ustar", 257


def read_head(file: FileIO) -> None:
    """Read the beginning of a file as torch < 1.6 saved it; the rest of its pickles follow.

    Raises CheckpointError for any other file, with what it is.
    """
    head = file.read(_LENGTH)
    if head in _HEADS:
        return
    start = head + file.read(512)
    if start.startswith(_TEXT_MAGIC):
        raise other_protocol("0 or 1")
    if start[:1] == b"\x80" and start[1] not in PROTOCOLS and _MAGIC in start[:_NEW]:
        raise other_protocol(start[1])
    if start[_TAR_AT:].startswith(_TAR):
        raise CheckpointError(
            f"refused: a tar, as torch < 0.1.10 saved, which torch cannot read without code; {SAVE_AGAIN}"
        )
    if start.startswith(b"\x1f\x8b"):
        raise CheckpointError("refused: it was compressed by gzip; unpack it")
    if start[:1] == b"\x80" and start[1:2] <= b"\x05":
        raise CheckpointError("refused: a pickle, but not one that torch.save wrote")
    raise CheckpointError("refused: not a file that torch.save wrote")
