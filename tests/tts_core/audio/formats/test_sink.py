"""Writes that go back: done in a file, dropped in a stream."""

from __future__ import annotations

import io

import pytest

from tts_core.audio.formats.sink import Sink


def write(*, seekable: bool) -> tuple[Sink, io.BytesIO]:
    output = io.BytesIO()
    sink = Sink(output, seekable=seekable)
    sink.write(b"head....")
    sink.write(memoryview(b"body"))
    sink.seek(4)
    assert sink.write(b"size") == 4
    return sink, output


def test_a_file_is_changed_and_a_stream_is_not() -> None:
    for seekable, expected in ((True, b"headsizebody tail"), (False, b"head....body tail")):
        sink, output = write(seekable=seekable)
        assert sink.tell() == 8
        assert sink.seekable() is seekable
        assert sink.seek(0, 2) == 12
        sink.write(b" tail")
        assert output.getvalue() == expected


def test_a_write_across_the_end_of_a_stream_adds_what_is_new() -> None:
    sink, output = write(seekable=False)
    sink.seek(-2, 2)
    sink.write(b"DY!")
    assert output.getvalue() == b"head....body!"
    assert sink.seek(-1, 1) == 12
    assert sink.read(5) == b""


def test_the_first_error_is_kept_and_nothing_more_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    sink, output = write(seekable=False)
    output.close()
    sink.seek(0, 2)
    assert sink.write(b"more") == 4
    first = sink.error
    assert isinstance(first, ValueError)
    sink.write(b"more")
    assert sink.error is first
