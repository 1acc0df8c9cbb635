"""Growth of the time that a function takes with the length of its text."""

from __future__ import annotations

import time
from collections.abc import Callable

SHORT, TIMES = 1_000, 8  # characters of the shorter text, and how many times longer the other is
LINEAR = 3 * TIMES  # quadratic time grows by TIMES squared
LONG = 125_000  # TIMES it are a million
# repeated, a text of one class of characters, or of what a rule begins with
UNITS = (
    *(
        "a",
        "A",
        "1",
        ".",
        ",",
        "!",
        "'",
        '"',
        "(",
        " ",
        "\n",
        "-",
        "—",
        "$",
        "%",
        "…",
        "。",
        "é",
        "東",
        "[",
        "&",
    ),
    *("A'", "A' ", "Dr.", "Dr. ", "A Dr. ", "St. A ", "etc. ", 'etc."', "p.m. ", "e.g.", "Jr. ", "U.S."),
    *(
        "1,",
        "1,000,",
        "1.",
        "1-",
        "12-",
        "12-12-12 ",
        "1:",
        "1/",
        "1/2 ",
        "1 ",
        "$1",
        "1$",
        "#1",
        "1 May ",
        "½",
    ),
    *(
        "a. ",
        "a.",
        ". ",
        ".'",
        "! ",
        '." ',
        " .",
        "- ",
        " - ",
        "\n\n",
        "\n ",
        "a\n",
        "a, ",
        "a b ",
        ",.",
        "。 ",
    ),
    *(
        "[S1]a ",
        "[S1]a. ",
        "[S1",
        "[ S",
        "[s2]a",
        "a[",
        "a b. [S2]",
        "5 km ",
        "AB ",
        "B. ",
        "- a\n",
        "1. a\n",
    ),
)


def growth(run: Callable[[str], object], unit: str, length: int = SHORT) -> float:
    """Time for a text of repeated units over the time for one of `length`, TIMES shorter; the least of
    several attempts.
    """
    found = float("inf")
    for _ in range(4):
        short = seconds(run, unit, length)
        found = min(found, seconds(run, unit, TIMES * length) / max(short, 1e-4))
        if found < LINEAR:
            break
    return found


def seconds(run: Callable[[str], object], unit: str, length: int) -> float:
    """Processor time of a run on a text of this many characters."""
    text = (unit * length)[:length]
    started = time.process_time()
    run(text)
    return time.process_time() - started
