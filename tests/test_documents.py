"""Links, length and options in the documents."""

import math
import re
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, cast

import pytest

from tts_core import models
from tts_core.options import Info, info, options_class

ROOT = Path(__file__).parent.parent
PAGES = (
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted(ROOT.glob("benchmarks/*.md")),
    *sorted(ROOT.glob("examples/**/*.md")),
)
LINK = re.compile(r"\]\(([^()\s]+)\)")
ELSEWHERE = ("http:", "https:")
LENGTH = 120  # lines of a page written by hand


@cache
def lines(page: Path) -> list[str]:
    """A page without its code."""
    return re.sub(r"(?ms)^```.*?^```$", "", page.read_text("utf-8")).split("\n")


@cache
def anchors(page: Path) -> frozenset[str]:
    """Anchors that GitHub gives to the headings of a page."""
    titles = [line.lstrip("#").strip().lower() for line in lines(page) if re.match(r"#{1,6} ", line)]
    return frozenset(re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles)


def links(page: Path) -> Iterator[str]:
    for line in lines(page):
        yield from (link for link in LINK.findall(line) if not link.startswith(ELSEWHERE))


def fault(page: Path, link: str) -> str | None:
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.is_relative_to(ROOT) or not target.exists():
        return f"{link}: no such file"
    if anchor and anchor not in anchors(target):
        return f"{link}: no such heading"
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page):
    assert [wrong for link in links(page) if (wrong := fault(page, link))] == []


SEARCHED = (
    "too fast",
    "voice changes",
    "voice cloning",
    "same seed",
    "short text",
    "inf, nan",
    "65536",
    "impacting interactivity",
    "memory",
    "bits",
)
SEARCHED += ("offline", "real time", "installation")


def test_questions_that_users_ask_have_a_heading():
    """A heading for each search; the page answers nothing else."""
    page = ROOT / "docs/use/questions.md"
    headings = [line.lower() for line in lines(page) if line.startswith("## ")]
    found = [[place for place, line in enumerate(headings) if words in line] for words in SEARCHED]
    assert found == [[place] for place in range(len(headings))]


def test_pages_of_use_are_short():
    long = {page.name: len(page.read_text().splitlines()) for page in (ROOT / "docs" / "use").glob("*.md")}
    assert {name: count for name, count in long.items() if count >= LENGTH} == {}


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= LENGTH


def test_the_index_lists_every_page():
    index = ROOT / "docs" / "README.md"
    listed = {(index.parent / link).resolve() for link in links(index)}
    docs = ROOT / "docs"
    assert listed == {*docs.glob("*.md"), *docs.glob("*/*.md")} - {index}


def page_of(name: str) -> Path:
    return ROOT / "docs/use" / f"{'qwen3_tts' if name == 'qwen3' else name}.md"


@pytest.mark.parametrize("name", models.NAMES)
def test_every_model_has_a_page(name):
    assert page_of(name).is_file()


@pytest.mark.parametrize("name", models.NAMES)
def test_a_models_page_lists_its_options(name):
    """Each with its flag, or none."""
    page = page_of(name).read_text()
    rows = re.findall(r"(?m)^\| `(\w+)` \| (?:`(--[\w-]+)`)? ?\|", page)
    options = {field.name: (*info(field).flags, "")[0] for field in fields(options_class(name))}
    assert dict(rows) == {option: flag.partition("/")[0] for option, flag in options.items()}


def documented_range(known: Info) -> str:
    """Write the range of an option as the tables do."""
    low = "" if known.low == -math.inf else f"{known.low:g}"
    above = "" if known.above == -math.inf else f"above {known.above:g}"
    if known.high == math.inf:
        return above or (f"from {low}" if low else "")
    high = "2^64 - 1" if known.high == 2**64 - 1 else f"{known.high:,.10g}"
    return f"{above}, to {high}" if above else f"{low} to {high}"


@pytest.mark.parametrize("name", models.NAMES)
def test_a_models_page_gives_defaults_and_ranges(name):
    """A default of None is described in words."""
    page = page_of(name).read_text()
    rows = {row[0]: row[1:] for row in re.findall(r"(?m)^\| `(\w+)` \|[^|]*\| ([^|]*) \| ([^|]*)\|", page)}
    wrong = []
    for field in fields(options_class(name)):
        default, bounds = rows[field.name]
        known, given = info(field), cast(Any, field.default)
        plain = f"{round(given, 1):g}" if type(given) in (int, float) else f"`{given}`".replace("'", '"')
        expected = f"to {known.high:,g} characters" if "str" in str(field.type) else documented_range(known)
        written = f'`"{given}"`' if isinstance(given, str) else plain
        if given is not None and default != written:
            wrong.append(f"{field.name}: default {default}, not {written}")
        if (known.flags or not known.choices) and bounds.strip().split(", or ")[0] not in (
            expected,
            ", ".join(f'`"{choice}"`' for choice in known.choices),
        ):
            wrong.append(f"{field.name}: range {bounds}, not {expected}")
    assert wrong == []
