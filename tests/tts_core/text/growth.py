"""Growth of the work of a function with the length of its text."""

from __future__ import annotations

from collections.abc import Callable

from tests.tts_core.growth import MOST
from tests.tts_core.growth import growth as growth_of

SHORT = 250  # characters of the shorter text
LINEAR = MOST
LONG = 125_000  # characters that are read at once
# repeated, a text of one class of characters, or of what a rule begins with
UNITS = (
    *"aA1.,!'\"( \n-—$%…。é東[&",
    *("A'", "A' ", "Dr.", "Dr. ", "A Dr. ", "St. A ", "etc. ", 'etc."', "p.m. ", "e.g.", "Jr. ", "U.S."),
    *("1,", "1,000,", "1.", "1-", "12-", "12-12-12 ", "1:", "1/", "1/2 ", "1 "),
    *("$1", "1$", "#1", "1 May ", "½"),
    *("a. ", "a.", ". ", ".'", "! ", '." ', " .", "- ", " - ", "\n\n", "\n ", "a\n"),
    *("a, ", "a b ", ",.", "。 "),
    *("[S1]a ", "[S1]a. ", "[S1", "[ S", "[s2]a", "a[", "a b. [S2]"),
    *("5 km ", "AB ", "B. ", "- a\n", "1. a\n"),
)


def growth(run: Callable[[str], object], unit: str, length: int = SHORT) -> float:
    """Lines that run for a text of repeated units, by those for one of `length`, TIMES shorter."""
    return growth_of(lambda size: run((unit * size)[:size]), length)
