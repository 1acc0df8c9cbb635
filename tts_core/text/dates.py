"""English dates in words: "March 3, 2024", "3 March", "2024-03-14", "3/14/2024".

Of a date in slashes the first number is the month, unless only the second can be.
"""

from __future__ import annotations

import re

from tts_core.text.abbreviations import MONTHS, SHORT_DAYS, SHORT_MONTHS, ends_sentence
from tts_core.text.numerals import ordinal, year
from tts_core.text.rewriting import Rule

_SHORT = "|".join(sorted(SHORT_MONTHS, reverse=True))
_MONTH = "|".join(MONTHS)
_IN_FULL = SHORT_MONTHS | SHORT_DAYS
_ANY_MONTH = rf"(?:{_MONTH}|{_SHORT})\b"
_WEEKDAY = "|".join(sorted(SHORT_DAYS, reverse=True))
_DAY = r"(?:0?[1-9]|[12]\d|3[01])"
_NO_MORE = r"(?!\d|[.,:/]\d|\s?%)"  # the digits of the day end here


def _short(match: re.Match[str]) -> str:
    stop = match[0].endswith(".") and ends_sentence(match.string, match.end())
    return _IN_FULL[match["short"]] + ("." if stop else "")


def _month_first(match: re.Match[str]) -> str:
    last = f" to {ordinal(int(match['last']))}" if match["last"] else ""
    return f"{match['month']} {ordinal(int(match['day']))}{last}"


def _day_first(match: re.Match[str]) -> str:
    article = "" if match.string[max(0, match.start() - 4) : match.start()].lower() == "the " else "the "
    return f"{article}{ordinal(int(match['day']))} of {match['month']}"


def _in_full(month: int, day: int, of: int) -> str:
    return f"{MONTHS[month - 1]} {ordinal(day)}, {year(of)}"


def _iso(match: re.Match[str]) -> str:
    return _in_full(int(match["month"]), int(match["day"]), int(match["year"]))


def _slashes(match: re.Match[str]) -> str:
    month, day = int(match["first"]), int(match["second"])
    mark = match.string[match.start("year") - 1]
    if month > 12:
        month, day = day, month
    if mark != match["mark"] or not (1 <= month <= 12 and 1 <= day <= 31):
        return match[0]
    short = len(match["year"]) == 2
    of = int(match["year"])
    if short:
        of += 2000 if of < 70 else 1900
    return _in_full(month, day, of)


RULES: list[Rule] = [
    (
        re.compile(rf"\b(?P<low>{_WEEKDAY})\b\.?\s?[-–]\s?(?P<high>{_WEEKDAY})\b(?:\.(?=,?\s[a-z\d]))?"),
        lambda match: f"{SHORT_DAYS[match['low']]} to {SHORT_DAYS[match['high']]}",
    ),
    # "Sat" and "Sun" are words, too
    (
        re.compile(
            rf"\b(?P<short>{_WEEKDAY})(?:\.(?=,?\s(?:\d|{_ANY_MONTH}))|(?=,\s(?:\d|{_ANY_MONTH}))"
            rf"|(?=\s(?:{_ANY_MONTH}|\d{{1,2}}(?::|\s?[ap]\.?m))))"
        ),
        _short,
    ),
    (re.compile(rf"(?<=\b[Oo]n\s)(?P<short>{_WEEKDAY})\b\.?"), _short),
    (re.compile(rf"\b(?P<short>{_SHORT})\b\.?(?=,?\s\d)"), _short),
    (re.compile(rf"(?<=\d\s)(?P<short>{_SHORT})\b\.?"), _short),
    (
        re.compile(
            rf"(?<![\d.,:-])(?P<year>1[1-9]\d\d|20\d\d)-(?P<month>0[1-9]|1[0-2])-(?P<day>{_DAY})"
            r"(?:T(?=\d\d:)|(?![-\w]))"
        ),
        _iso,
    ),
    (
        re.compile(
            r"(?<![\w/.,:-])(?P<first>\d{1,2})(?P<mark>[/.-])(?P<second>\d{1,2})[/.-]"
            r"(?P<year>1[1-9]\d\d|20\d\d|(?<=/)\d\d)(?![\w/]|[.-]\d)"
        ),
        _slashes,
    ),
    (
        re.compile(
            rf"\b(?P<month>{_MONTH})\s(?P<day>{_DAY})(?:st|nd|rd|th)?\b{_NO_MORE}"
            rf"(?:\s?[-–]\s?(?P<last>{_DAY})\b{_NO_MORE})?"
        ),
        _month_first,
    ),
    (
        re.compile(rf"(?<![\w.,:/$€£-])(?P<day>{_DAY})(?:st|nd|rd|th)?\s(?P<month>{_MONTH})\b"),
        _day_first,
    ),
]
