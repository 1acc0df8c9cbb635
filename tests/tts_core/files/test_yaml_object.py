"""YAML of others: a mapping within bounds, or one line that names the file."""

import pytest

from tests.tts_core.growth import MOST, growth
from tts_core.errors import CheckpointError
from tts_core.files.yaml_object import LARGEST_YAML, parse_yaml


def test_a_mapping():
    assert parse_yaml("a: {b: [1, 2.5, x]}\nc: null\n", "config.yaml") == {
        "a": {"b": [1, 2.5, "x"]},
        "c": None,
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected an object, found None"),
        ("- 1", "expected an object, found [1]"),
        ("a: [", "not readable as YAML: line 1: expected the node content"),
        ("a: &x [1]\nb: *x", "not readable as YAML: aliases are not supported"),
        ("a: &x {b: 1}\nc: {<<: *x}", "not readable as YAML: aliases are not supported"),
        (
            "a: !!python/object/apply:os.system [ls]",
            "not readable as YAML: line 1: could not determine a constructor",
        ),
        ("a: 2001-99-99", "not readable as YAML: month must be in 1..12"),
        ("a: " + "[" * 20_000, "not readable as YAML: maximum recursion"),
        ("? [a]\n: b", "not readable as YAML: line 1: found unhashable key"),
        ("a: \x07", "not readable as YAML: unacceptable character"),
        ("a: " + "x" * LARGEST_YAML, "characters; at most 65536 are read"),
    ],
)
def test_what_is_no_mapping_of_plain_values(text, said):
    with pytest.raises(CheckpointError) as caught:
        parse_yaml(text, "config.yaml")
    assert str(caught.value).startswith("config.yaml: ")
    assert said in str(caught.value)
    assert len(str(caught.value)) < 300


def test_aliases_that_double():
    """Ten levels are 2 ** 10 values, forty would not end: a message prints a value."""
    levels = "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 40))
    with pytest.raises(CheckpointError, match="aliases"):
        parse_yaml("a0: &a0 [1]\n" + levels, "config.yaml")


@pytest.mark.parametrize("line", ["a{}: [1, 2.5, 'x']\n", "a{}: {{b: c}}\n", "a{}: 1:59:59\n"])
def test_text_takes_linear_work(line):
    def work(count: int) -> None:
        parse_yaml("".join(line.format(i) for i in range(count)), "config.yaml")

    assert growth(work, 15) < MOST
