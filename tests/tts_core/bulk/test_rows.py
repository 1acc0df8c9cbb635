"""Rows from every kind of source, and sources that cannot be used."""

import json
import tracemalloc
from pathlib import Path

import pytest

from tts_core.bulk.rows import TextRow, read_rows
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
    assert read_rows(path).rows == [
        TextRow(0, "x", "One.", voice="anna", seed=2**64 - 1, options={"top_k": 3}),
        TextRow(1, "000002", "Two.", ref_audio=str(tmp_path / "v.wav"), ref_text="Said."),
    ]


def test_a_line_a_row(tmp_path: Path) -> None:
    rows = read_rows(written(tmp_path / "a.txt", "\ufeffOne.", "", "  Two. ")).rows
    assert rows == [TextRow(0, "000001", "One."), TextRow(1, "000002", "Two.")]


def test_chapters_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("02 end.txt", "01.md", "note.pdf"):
        (tmp_path / name).write_text(f"{name}\n\nmore")
    assert read_rows(tmp_path).rows == [
        TextRow(0, "01", "01.md\n\nmore"),
        TextRow(1, "02 end", "02 end.txt\n\nmore"),
    ]


MARKDOWN = """# The *Title* #

It began [here](https://example.com/a), ![a cat](cat.png).

Part two
--------

1. **Eggs**
2. `Ham`

> #1 is a_b_c, 2 * 3 * 4 [S1](aside).

```
code
```
***
"""


def test_marks_of_markdown_are_not_spoken(tmp_path: Path) -> None:
    """In chapters of that name only."""
    for name in ("a.md", "b.txt"):
        (tmp_path / name).write_text(MARKDOWN)
    chapter, text = read_rows(tmp_path).rows
    assert " ".join(chapter.text.split()) == (
        "The Title It began here, a cat. Part two 1. Eggs 2. Ham #1 is a_b_c, 2 * 3 * 4 [S1](aside). code"
    )
    assert "The Title\n\n" in chapter.text
    assert "Part two\n\n" in chapter.text
    assert text.text == MARKDOWN.strip()


def test_seed_tts_eval(tmp_path: Path) -> None:
    path = written(tmp_path / "meta.lst", "a-1|What I said.|wavs/a.wav|What to say.", "b|x|y.wav|z|truth.wav")
    assert read_rows(path).rows == [
        TextRow(0, "a-1", "What to say.", ref_audio=str(tmp_path / "wavs/a.wav"), ref_text="What I said."),
        TextRow(1, "b", "z", ref_audio=str(tmp_path / "y.wav"), ref_text="x"),
    ]


@pytest.mark.parametrize(
    ("name", "line", "reason"),
    [
        ("a.jsonl", "{", "not JSON"),
        ("a.jsonl", "[" * 100_000, "not JSON"),
        ("a.jsonl", "[]", "not an object"),
        ("a.jsonl", '{"text": "x", "seed": ' + "9" * 5000 + "}", "not JSON"),
        ("a.jsonl", '{"txt": "x"}', "unknown field 'txt'; did you mean text"),
        ("a.jsonl", '{"id": "x"}', "text is missing"),
        ("a.jsonl", '{"text": 3}', "text is not a string"),
        ("a.jsonl", '{"text": "x", "ref_text": 3}', "ref_text is not a string"),
        ("a.jsonl", '{"text": "x", "seed": -1}', "seed -1 is not"),
        ("a.jsonl", f'{{"text": "x", "seed": {2**64}}}', "seed 18446744073709551616 is not"),
        ("a.jsonl", '{"text": "x", "seed": true}', "seed True is not"),
        ("a.jsonl", '{"text": "x", "options": []}', "options is not an object"),
        ("a.jsonl", '{"text": "x", "options": {"seed": 7}}', "seed is a field of the row, beside text"),
        ("a.jsonl", '{"text": "x", "voice": "a", "ref_audio": "b"}', "not both"),
        ("a.jsonl", '{"text": "x", "id": "../x"}', "cannot name a file"),
        ("a.jsonl", '{"text": "x", "id": ""}', "cannot name a file"),
        ("a.jsonl", '{"text": "x", "id": "\\ud800"}', "cannot name a file"),
        ("a.jsonl", json.dumps({"text": "x", "id": "a" * 101}), "at most 100 bytes"),
        ("a.jsonl", '{"text": "x", "id": "FIRST"}', "the id 'FIRST' is that of line 1, too"),
        ("a.jsonl", '{"text": "a", "ref_audio": "\\ud800"}', "ref_audio: character 1 is U+D800"),
        ("a.jsonl", '{"text": "a", "ref_audio": "a\\u0000b"}', "ref_audio: character 2 is U+0000"),
        ("a.lst", "a|b|c", "3 fields; expected id|"),
        ("a.lst", "a|b|c\0|d", "ref_audio: character 2 is U+0000"),
    ],
)
def test_a_line_that_cannot_be_used_costs_itself(tmp_path: Path, name: str, line: str, reason: str) -> None:
    """Its outcome is beside the rows, with its place."""
    good = {"a.jsonl": '{"text": "One.", "id": "first"}', "a.lst": "first|b|c|One."}[name]
    found = read_rows(written(tmp_path / name, good, "", line, good.replace("first", "last")))
    assert [(row.number, row.id) for row in found.rows] == [(0, "first"), (2, "last")]
    [fault] = found.faults
    assert (fault.number, found.origins) == (1, {0: "line 1", 1: "line 3", 2: "line 4"})
    assert reason in str(fault.error)
    assert str(fault.error).isprintable()
    assert found.first(1) == (found.rows[:1], [], found.origins)
    assert found.first(2).faults == found.faults
    assert found.first(None) == found


def test_a_fault_has_the_id_of_its_row(tmp_path: Path) -> None:
    found = read_rows(written(tmp_path / "a.jsonl", {"id": "x", "text": 3}, {"id": "../x", "text": "a"}, "{"))
    assert [fault.id for fault in found.faults] == ["x", "000002", "000003"]


@pytest.mark.parametrize("names", [("One", "one"), ("one", "ONE")])
def test_ids_that_differ_in_case_only_name_one_file(tmp_path: Path, names: tuple[str, str]) -> None:
    found = read_rows(written(tmp_path / "a.jsonl", *({"id": name, "text": "a"} for name in names)))
    assert [row.id for row in found.rows] == [names[0]]
    assert [fault.id for fault in found.faults] == [names[1]]


def test_the_longest_id(tmp_path: Path) -> None:
    [row] = read_rows(written(tmp_path / "a.jsonl", {"id": "a" * 100, "text": "b"})).rows
    assert row.id == "a" * 100


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="missing"):
        read_rows(tmp_path / "missing.jsonl")
    with pytest.raises(UsageError, match="contains no texts"):
        read_rows(written(tmp_path / "a.txt", ""))
    (tmp_path / "a.txt").write_bytes(b"One.\n\xff\xfe\nTwo.")
    found = read_rows(tmp_path / "a.txt")
    assert [row.text for row in found.rows] == ["One.", "Two."]
    assert [fault.error for fault in found.faults] == ["not UTF-8; save it as UTF-8"]


LONG = "a" * 1_000_001


@pytest.mark.parametrize(
    ("name", "content", "place"),
    [
        ("a.jsonl", json.dumps({"text": LONG}), "line 1"),
        ("a.jsonl", json.dumps({"text": "a", "ref_audio": "b.wav", "ref_text": LONG}), "line 1"),
        ("a.txt", LONG, "line 1"),
        ("meta.lst", f"name|{LONG}|a.wav|said", "line 1"),
        ("book/a.txt", "ä" * 9_000_000, "a.txt"),
    ],
)
def test_a_text_of_more_than_a_million_characters(
    tmp_path: Path, name: str, content: str, place: str
) -> None:
    """One of a million is taken."""
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    source = path.parent if name.startswith("book") else path
    found = read_rows(source)
    assert (found.rows, found.origins) == ([], {0: place})
    [fault] = found.faults
    assert fault.error in (
        "1000001 characters, at most 1000000 are taken; split the text",
        "more than 16 MB; split it",
    )
    if LONG in content:
        path.write_text(content.replace(LONG, LONG[1:]))
        assert len(read_rows(source).rows) == 1


def test_a_line_of_many_megabytes(tmp_path: Path) -> None:
    """It is skipped to its end, never kept as a whole."""
    path = tmp_path / "a.txt"
    path.write_text("a\n" + "a" * (50 << 20) + "\nb\n")
    tracemalloc.start()
    found = read_rows(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [row.text for row in found.rows] == ["a", "b"]
    assert [(found.origins[one.number], one.error) for one in found.faults] == [
        ("line 2", "more than 16 MB; split it")
    ]
    assert peak < 45 << 20
