"""Sounds inside a file, where libsndfile reads less: the first one of a joined file, as much of an MP3 as its
header states, and nothing of a WAV that states no size."""

from __future__ import annotations

import io
import re
import shutil
import struct
import tempfile
from collections.abc import Iterator
from io import FileIO
from itertools import islice
from typing import BinaryIO

LARGEST = 1 << 31  # bytes that are searched for joined sounds
MOST_SOUNDS = 1000  # of a file
LARGEST_MP3 = 160 << 20  # bytes; half an hour has 72 million at the highest bit rate
MOST_FRAMES = 80_000  # of an MP3; one takes 24 ms or longer
_PIECE = 1 << 20  # bytes searched at a time
_HEADS = {  # of every sound of a joined file, 12 bytes at most
    b"OggS": re.compile(rb"OggS\x00[\x02\x03\x06\x07]"),  # a page that opens a logical stream
    b"fLaC": re.compile(rb"fLaC[\x00\x80]\x00\x00\x22"),  # with the head of STREAMINFO, 34 bytes
    b"RIFF": re.compile(rb"RIFF.{4}WAVE", re.DOTALL),
    b"FORM": re.compile(rb"FORM.{4}AIF[FC]", re.DOTALL),
    b"caff": re.compile(rb"caff\x00\x01\x00\x00desc"),
    b".snd": re.compile(rb"\.snd\x00\x00\x00"),
}
_TAG_OR_FRAME = re.compile(rb"ID3|\xff[\xe2\xe3\xf2\xf3\xfa\xfb]")  # of layer III
_BITRATES = {  # kbit/s of layer III, by MPEG-1 or not
    True: (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    False: (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
_RATES = (44100, 48000, 32000)  # Hz of MPEG-1; MPEG-2 has a half, MPEG-2.5 a quarter


class MixedError(RuntimeError):
    """The sounds of a file cannot be read as one."""


def streams(file: FileIO) -> Iterator[BinaryIO | None]:
    """Yield the sounds of a file in order, as files that libsndfile reads whole; None for the file itself.

    Raises MixedError for too many sounds, and for an MP3 whose frames differ in rate or channels.
    """
    head = file.read(10)
    start = _tag_size(head) if head[:3] == b"ID3" else 0
    file.seek(start)
    head = file.read(4)
    starts = _starts(file, _HEADS[head]) if head in _HEADS else []
    if len(starts) > MOST_SOUNDS:
        raise MixedError(f"it is joined of more than {MOST_SOUNDS} sounds")
    if len(starts) > 1:
        for start, end in zip(starts, [*starts[1:], None], strict=True):
            file.seek(start)
            yield io.BytesIO(file.read(-1 if end is None else end - start))
    elif head == b"RIFF":
        yield from _with_its_size(file)
    else:
        file.seek(start)
        yield _counted(file) if _TAG_OR_FRAME.match(head) else None


def _starts(file: FileIO, pattern: re.Pattern[bytes]) -> list[int]:
    """Find the heads of all sounds."""
    found, offset, held = set[int](), 0, b""
    file.seek(0)
    while offset < LARGEST and (piece := file.read(_PIECE)):
        held += piece
        found.update(offset + match.start() for match in pattern.finditer(held))
        offset, held = offset + len(held[:-11]), held[-11:]  # a head may go on in the next piece
    return sorted(found)


def _with_its_size(file: FileIO) -> Iterator[BinaryIO | None]:
    """Yield a copy of a WAV whose data chunk has size 0, with its sound in the chunk, as ffmpeg does."""
    name, size, offset, end = b"", 4, 0, file.seek(0, io.SEEK_END)
    while name != b"data" and (offset := offset + 8 + size + size % 2) + 8 < end:
        file.seek(offset)
        name, size = struct.unpack("<4sI", file.read(8))
    if name != b"data" or size:
        yield None
        return
    with tempfile.TemporaryFile() as copy:
        file.seek(0)
        shutil.copyfileobj(file, copy)
        copy.seek(offset + 4)
        copy.write(struct.pack("<I", min(end - offset - 8, 0xFFFFFFFF)))
        copy.seek(0)
        yield copy


def _counted(file: FileIO) -> BinaryIO | None:
    """Collect the frames of an MP3 after one that states their number; None if its own first one does."""
    content = file.read(LARGEST_MP3)
    frames = [content[start:end] for start, end in islice(_frames(content), MOST_FRAMES)]
    if not frames:
        return None
    if len({(frame[1] & 0xFE, frame[2] & 0x0C, frame[3] >> 6 == 3) for frame in frames}) > 1:
        raise MixedError("its parts differ in rate or channels")
    first = frames[0]
    head = bytes([255, first[1] | 1, first[2] & 0x0C | 0x90, first[3]])  # no checksum, a middle bit rate
    mono = first[3] >> 6 == 3
    side = (17 if mono else 32) if first[1] & 8 else (9 if mono else 17)  # bytes of zeros after the head
    stated = first[4 + side :]
    if stated[:4] in (b"Xing", b"Info") and stated[7] & 1:
        if int.from_bytes(stated[8:12], "big") >= len(frames) - 1:
            return None
        frames = frames[1:]
    counting = head + bytes(side) + b"Xing" + struct.pack(">II", 1, len(frames))
    return io.BytesIO(b"".join([counting.ljust(_size(head), b"\0"), *frames]))


def _frames(content: bytes) -> Iterator[tuple[int, int]]:
    """Find frames that follow another frame, or that another one of their kind follows."""
    offset = end = 0
    while found := _TAG_OR_FRAME.search(content, offset):
        offset = found.start()
        if found[0] == b"ID3":
            offset += _tag_size(content[offset : offset + 10])
            continue
        size = _size(content[offset : offset + 4])
        after = content[offset + size : offset + size + 4]
        if size and (offset == end or (_size(after) and after[1] == content[offset + 1])):
            end = offset + size
            yield offset, end
        offset = max(offset + 1, end)


def _size(head: bytes) -> int:
    """Bytes of a frame by its first four; 0 for something else."""
    if len(head) < 4 or not _TAG_OR_FRAME.match(head) or head[:3] == b"ID3":
        return 0
    bits, rate = head[2] >> 4, head[2] >> 2 & 3
    if bits in (0, 15) or rate == 3:
        return 0
    first = head[1] & 8 == 8  # MPEG-1
    hertz = _RATES[rate] // (1 if first else 2 if head[1] & 16 else 4)
    return (144 if first else 72) * 1000 * _BITRATES[first][bits - 1] // hertz + (head[2] >> 1 & 1)


def _tag_size(head: bytes) -> int:
    """Bytes of an ID3 tag by its first ten: seven bits of each of the last four, and the ten."""
    size = 0
    for byte in head[6:10]:
        size = size << 7 | byte & 0x7F
    return 10 + size
