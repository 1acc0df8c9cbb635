"""Manifests, folders and single recordings."""

import json
from pathlib import Path

import pytest

from tts_core.errors import NotFoundError, UsageError
from tts_core.judges.rows import RecordingRow, read_rows


def test_a_manifest(tmp_path: Path) -> None:
    lines = [
        {"audio_filepath": "a.wav", "text": "One.", "id": 7, "ref_audio": "v.wav", "duration": 1.5},
        {"audio_filepath": "/far/b.flac"},
    ]
    path = tmp_path / "m.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    assert read_rows(path, reference=Path("else.wav")) == [
        RecordingRow("7", tmp_path / "a.wav", "One.", tmp_path / "v.wav"),
        RecordingRow("/far/b.flac", Path("/far/b.flac"), None, Path("else.wav")),
    ]


def test_a_folder(tmp_path: Path) -> None:
    for name in ("b.flac", "a.WAV", "a.txt", "note.md"):
        (tmp_path / name).write_text(" What it says.\n")
    assert read_rows(tmp_path) == [
        RecordingRow("a.WAV", tmp_path / "a.WAV", "What it says."),
        RecordingRow("b.flac", tmp_path / "b.flac"),
    ]


def test_the_folder_of_a_batch(tmp_path: Path) -> None:
    (tmp_path / "manifest.jsonl").write_text(
        '{"audio_filepath": "audio/a.flac", "text": "One.", "id": "a"}\n'
    )
    assert read_rows(tmp_path) == [RecordingRow("a", tmp_path / "audio/a.flac", "One.")]


def test_one_recording(tmp_path: Path) -> None:
    (tmp_path / "a.wav").touch()
    assert read_rows(tmp_path / "a.wav", "Hi.") == [RecordingRow("a.wav", tmp_path / "a.wav", "Hi.")]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("x", "line 1: not JSON"),
        ("[" * 100_000, "line 1: not JSON"),
        ("[]", "audio_filepath is missing"),
        ('{"audio_filepath": 3}', "audio_filepath is missing"),
        ('{"audio_filepath": "a", "text": 3}', "text is not a string"),
        ("", "contains no recordings"),
    ],
)
def test_lines_that_cannot_be_used(tmp_path: Path, line: str, reason: str) -> None:
    (tmp_path / "m.jsonl").write_text(line + "\n")
    with pytest.raises(UsageError, match=reason):
        read_rows(tmp_path / "m.jsonl")


def test_text_is_for_one_recording(tmp_path: Path) -> None:
    (tmp_path / "a.wav").touch()
    with pytest.raises(UsageError, match="only for a single recording"):
        read_rows(tmp_path, "Hi.")
    with pytest.raises(NotFoundError, match="missing"):
        read_rows(tmp_path / "missing.jsonl")
