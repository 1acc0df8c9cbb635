"""Rows from every kind of source, and sources that cannot be used."""

import json
from pathlib import Path

import pytest

from tts_core.bulk.rows import Row, read_rows
from tts_core.errors import NotFoundError, UsageError


def written(path: Path, *lines: object) -> Path:
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + "\n")
    return path


def test_json_lines(tmp_path: Path) -> None:
    path = written(
        tmp_path / "a.jsonl",
        {"text": "One.", "id": "x", "voice": "anna", "seed": 2**64 - 1, "options": {"top_k": 3}},
        "",
        {"text": "Two.", "ref_audio": "v.wav", "ref_text": "Said."},
    )
    assert read_rows(path) == [
        Row(0, "x", "One.", voice="anna", seed=2**64 - 1, options={"top_k": 3}),
        Row(1, "000002", "Two.", ref_audio=str(tmp_path / "v.wav"), ref_text="Said."),
    ]


def test_a_line_a_row(tmp_path: Path) -> None:
    rows = read_rows(written(tmp_path / "a.txt", "\ufeffOne.", "", "  Two. "))
    assert rows == [Row(0, "000001", "One."), Row(1, "000002", "Two.")]


def test_chapters_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("02 end.txt", "01.md", "note.pdf"):
        (tmp_path / name).write_text(f"{name}\n\nmore")
    assert read_rows(tmp_path) == [Row(0, "01", "01.md\n\nmore"), Row(1, "02 end", "02 end.txt\n\nmore")]


def test_seed_tts_eval(tmp_path: Path) -> None:
    path = written(tmp_path / "meta.lst", "a-1|What I said.|wavs/a.wav|What to say.", "b|x|y.wav|z|truth.wav")
    assert read_rows(path) == [
        Row(0, "a-1", "What to say.", ref_audio=str(tmp_path / "wavs/a.wav"), ref_text="What I said."),
        Row(1, "b", "z", ref_audio=str(tmp_path / "y.wav"), ref_text="x"),
    ]


@pytest.mark.parametrize(
    ("name", "line", "reason"),
    [
        ("a.jsonl", "{", "line 1: not JSON"),
        ("a.jsonl", "[" * 100_000, "line 1: not JSON"),
        ("a.jsonl", "[]", "line 1: not an object"),
        ("a.jsonl", '{"txt": "x"}', "unknown field 'txt'; did you mean text"),
        ("a.jsonl", '{"id": "x"}', "text is missing"),
        ("a.jsonl", '{"text": 3}', "text is not a string"),
        ("a.jsonl", '{"text": "x", "seed": -1}', "seed -1 is not"),
        ("a.jsonl", '{"text": "x", "seed": true}', "seed True is not"),
        ("a.jsonl", '{"text": "x", "options": []}', "options is not an object"),
        ("a.jsonl", '{"text": "x", "voice": "a", "ref_audio": "b"}', "not both"),
        ("a.jsonl", '{"text": "x", "id": "../x"}', "cannot name a file"),
        ("a.jsonl", '{"text": "x", "id": ""}', "cannot name a file"),
        ("a.jsonl", '{"text": "x", "id": "a"}\n{"text": "y", "id": "A"}', "rows 1 and 2 have the id"),
        ("a.lst", "a|b|c", "line 1: 3 fields"),
        ("a.txt", "", "contains no texts"),
    ],
)
def test_lines_that_cannot_be_used(tmp_path: Path, name: str, line: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        read_rows(written(tmp_path / name, line))


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="missing"):
        read_rows(tmp_path / "missing.jsonl")
    (tmp_path / "a.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="not UTF-8"):
        read_rows(tmp_path / "a.txt")


LONG = "a" * 1_000_001


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", json.dumps({"text": LONG})),
        ("a.jsonl", json.dumps({"text": "a", "ref_audio": "b.wav", "ref_text": LONG})),
        ("a.txt", LONG),
        ("meta.lst", f"name|{LONG}|a.wav|said"),
        ("book/a.txt", "ä" * 9_000_000),
    ],
)
def test_a_text_of_more_than_a_million_characters(tmp_path: Path, name: str, content: str) -> None:
    """One of a million is taken."""
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    source = path.parent if name.startswith("book") else path
    with pytest.raises(
        UsageError, match=r"characters, at most 1000000 are taken; split|more than 16 MB; split"
    ):
        read_rows(source)
    if LONG in content:
        path.write_text(content.replace(LONG, LONG[1:]))
        assert len(read_rows(source)) == 1


def test_a_line_of_many_megabytes(tmp_path: Path) -> None:
    """It is not read to its end."""
    path = tmp_path / "a.txt"
    path.write_text("a\n" + "a" * (17 << 20))
    with pytest.raises(UsageError, match=r"a\.txt, line 2: more than 16 MB; split it"):
        read_rows(path)
