"""JSON of others: an object within bounds, or one line that names the file."""

from pathlib import Path

import pytest

from tts_core.errors import CheckpointError
from tts_core.files.json_object import read_json


def fault(folder: Path, content: bytes) -> str:
    (folder / "config.json").write_bytes(content)
    with pytest.raises(CheckpointError) as caught:
        read_json(folder / "config.json")
    assert str(caught.value).startswith(f"{folder / 'config.json'}: ")
    return str(caught.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not readable as JSON"),
        (b"[]", "not a JSON object"),
        (b"\xff", "not UTF-8"),
        (b"\xff\xfe{\x00}\x00", "not UTF-8"),
        (b'{"a":' * 100_000, "recursion"),
        (b'{"a":' + b"[" * 100_000, "recursion"),
        (b'{"a": NaN}', "NaN is not a number in JSON"),
        (b'{"a": -Infinity}', "-Infinity is not a number in JSON"),
        (b'{"a": 1e999}', "1e999 is too large a number"),
        (b'{"a": ' + b"9" * 5000 + b"}", "digits"),
    ],
)
def test_what_is_no_object_of_plain_values(tmp_path, content, said):
    assert said in fault(tmp_path, content)


def test_an_object_and_its_bound(tmp_path):
    path = tmp_path / "config.json"
    path.write_text('{"a": [1, 2.5, null, true, "\\ud800"]}', "utf-8")
    assert read_json(path) == {"a": [1, 2.5, None, True, "\ud800"]}
    with pytest.raises(CheckpointError, match="larger than 10 bytes"):
        read_json(path, most=10)
