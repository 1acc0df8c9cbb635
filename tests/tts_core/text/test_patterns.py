"""Every regular expression that reads texts takes a number of steps in proportion to the text."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import pytest

import tts_core
from tests.tts_core.growth import TIMES
from tests.tts_core.text.growth import LINEAR, UNITS
from tests.tts_core.text.matching import Matcher
from tts_core.text.rules import FILE, read_rules
from tts_core.voice.embedded import DIA

FOLDERS = ("text", "speaking", "dia", "dia2", "mars5", "metavoice", "qwen3")
SHORT = 25  # characters
AT_A_PLACE = {"match", "fullmatch"}


def modules() -> Iterator[Any]:
    for folder in FOLDERS:
        [path] = import_module(f"tts_core.{folder}").__path__
        for found in iter_modules([path]):
            yield import_module(f"tts_core.{folder}.{found.name}")


def within(value: Any) -> Iterator[re.Pattern[str]]:
    """Yield the patterns of a module's value."""
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, (tuple, list)):
        for one in value:
            yield from within(one)
    elif isinstance(value, dict):
        yield from within([*value.values()])


def patterns() -> dict[str, tuple[re.Pattern[str], bool]]:
    """By their text; whether one is only tried at a place, not looked for."""
    rules = read_rules({FILE: (DIA / FILE).read_text("utf-8")})
    kept = [value for name in dir(type(rules)) if isinstance(value := getattr(rules, name), re.Pattern)]
    found = {one.pattern: (one, False) for one in kept}
    for module in modules():
        source = Path(module.__file__).read_text("utf-8")
        for name, value in vars(module).items():
            uses = set(re.findall(rf"\b{re.escape(name)}\.(\w+)\(", source))
            for one in within(value):
                if isinstance(one.pattern, str):
                    found[one.pattern] = one, bool(uses) and uses <= AT_A_PLACE
    return found


PATTERNS = patterns()


def steps(pattern: re.Pattern[str], text: str, *, at_a_place: bool = False) -> int:
    """Count the steps for all matches, which are those of Python's engine."""
    matcher = Matcher(pattern)
    if at_a_place:
        known = pattern.match(text)
        assert matcher.span(text) == (None if known is None else known.span()), text
    else:
        assert [*matcher.spans(text)] == [found.span() for found in pattern.finditer(text)], text
    return matcher.steps


@pytest.fixture(autouse=True)
def deep() -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    yield
    sys.setrecursionlimit(before)


def test_all_are_here() -> None:
    """As many as the sources compile, about: a module that is not found would hide its own."""
    folders = [Path(tts_core.__path__[0]) / folder for folder in FOLDERS]
    compiled = sum(
        file.read_text("utf-8").count("re.compile(") for one in folders for file in one.glob("*.py")
    )
    assert len(PATTERNS) >= 0.8 * compiled > 50


@pytest.mark.parametrize(("pattern", "at_a_place"), PATTERNS.values(), ids=range(len(PATTERNS)))
def test_takes_linear_steps(pattern: re.Pattern[str], at_a_place: bool) -> None:
    for unit in UNITS:
        short, long = (
            steps(pattern, (unit * size)[:size], at_a_place=at_a_place) for size in (SHORT, TIMES * SHORT)
        )
        assert long < LINEAR * short, (pattern.pattern, unit)


@pytest.mark.parametrize("pattern", [r"a+b", r"(?:a+)+b", r"\s*\Z", r"(?:a|aa)*$x"])
def test_others_are_found(pattern: str) -> None:
    """Those that look for their end from every place, or in many ways."""
    sizes = (6, 12) if "(" in pattern else (SHORT, TIMES * SHORT)
    unit = " " if "s" in pattern else "a"
    short, long = (steps(re.compile(pattern), unit * size + ".") for size in sizes)
    assert long > (LINEAR if sizes[0] == SHORT else 10) * short
