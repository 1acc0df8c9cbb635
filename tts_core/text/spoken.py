"""Numbers, dates, money and abbreviations of an English text in words.

For networks that read letters and have seen few digits. Other text stays as it is. Of several readings the
commoner one is taken: four digits from 1100 to 2099 without a comma are a year. Every rule takes linear time.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tts_core.text import abbreviations, dates
from tts_core.text.abbreviations import ends_sentence
from tts_core.text.numerals import (
    ONES,
    cardinal,
    digits,
    plural,
    written_number,
    written_ordinal,
    year,
)

CURRENCIES = {
    "$": ("dollar", "dollars", "cent", "cents"),
    "€": ("euro", "euros", "cent", "cents"),
    "£": ("pound", "pounds", "penny", "pence"),
}
CODES = {"USD": "$", "EUR": "€", "GBP": "£"}
SIZES = {"k": "thousand", "m": "million", "b": "billion", "bn": "billion"}
UNITS = {
    "km/h": ("kilometer per hour", "kilometers per hour"),
    "mph": ("mile per hour", "miles per hour"),
    "km": ("kilometer", "kilometers"),
    "cm": ("centimeter", "centimeters"),
    "mm": ("millimeter", "millimeters"),
    "ft": ("foot", "feet"),
    "kg": ("kilogram", "kilograms"),
    "mg": ("milligram", "milligrams"),
    "lbs": ("pound", "pounds"),
    "lb": ("pound", "pounds"),
    "oz": ("ounce", "ounces"),
    "ml": ("milliliter", "milliliters"),
    "hrs": ("hour", "hours"),
    "GB": ("gigabyte", "gigabytes"),
    "MB": ("megabyte", "megabytes"),
    "°C": ("degree Celsius", "degrees Celsius"),
    "°F": ("degree Fahrenheit", "degrees Fahrenheit"),
    "°": ("degree", "degrees"),
}
FRACTIONS = {"½": "1/2", "⅓": "1/3", "⅔": "2/3", "¼": "1/4", "¾": "3/4"}
PARTS = ("half", "third", "quarter", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")  # from 1/2
# characters that the rules read where a number is beside them, and that may be left elsewhere
SIGNS = "$€£%#&°−" + "".join(FRACTIONS)

_NUMBER = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?!\d)"
_FREE = r"(?<![\d.,:])"  # not inside a number
_SIGN = r"(?P<sign>(?<![\w.,])[-−])?"
_MANY = r"(?:\s(?P<many>thousand|million|billion|trillion)\b|(?P<size>[KkMm]|bn|[Bb])(?!\w))?"
_CODE = "|".join(CODES)
_LOCAL = r"[2-9]\d\d-(?:0\d{3}|\d{3}[1-9])"  # a telephone number; a range ends in a round number
_HALF = r"(?P<half>[AaPp](?:\.\s?[Mm]\.|[Mm]\b))"


def spoken(text: str) -> str:
    """Put numbers and abbreviations into words. Everything else stays, white space included."""
    for pattern, say in RULES:
        text = pattern.sub(say, text)
    return text


def _signed(match: re.Match[str], words: str) -> str:
    return f"minus {words}" if match["sign"] else words


def _money(match: re.Match[str]) -> str:
    groups = match.groupdict()
    code = groups.get("symbol") or CODES[groups["code"]]
    one, several, cent, cents = CURRENCIES[code]
    whole, _, fraction = match["number"].replace(",", "").partition(".")
    if many := match["many"] or SIZES.get((match["size"] or "").lower()):
        return _signed(match, f"{written_number(match['number'])} {many} {several}")
    if len(fraction) != 2:
        unit = one if match["number"] == "1" else several
        return _signed(match, f"{written_number(match['number'])} {unit}")
    parts = []
    if whole.strip("0") or not int(fraction):
        parts.append(f"{written_number(whole)} {one if whole == '1' else several}")
    if int(fraction):
        parts.append(f"{cardinal(int(fraction))} {cent if int(fraction) == 1 else cents}")
    return _signed(match, " and ".join(parts))


def _time(match: re.Match[str]) -> str:
    hour, minute, second = int(match["hour"]), int(match["minute"]), match["second"]
    words = ONES[hour] if hour < 20 else cardinal(hour)
    if minute > 9:
        words += f" {cardinal(minute)}"
    elif minute:
        words += f" oh {ONES[minute]}"
    elif second:
        words += " hundred"
    elif not match["half"]:
        words = "midnight" if hour == 0 else f"{words} o'clock" if hour < 13 else f"{words} hundred"
    if second:
        words += f" and {cardinal(int(second))} second{'' if int(second) == 1 else 's'}"
    return words + _half(match)


def _hour(match: re.Match[str]) -> str:
    return ONES[int(match["hour"])] + _half(match)


def _half(match: re.Match[str]) -> str:
    """ " a m" or " p m", with the full stop of a sentence that ends there; nothing for a bare time."""
    half = match["half"]
    if not half:
        return ""
    stop = half.endswith(".") and ends_sentence(match.string, match.end())
    return f" {half[0].lower()} m" + ("." if stop else "")


def _decade(match: re.Match[str]) -> str:
    if match["short"]:
        return plural(cardinal(int(match["short"])))
    return plural(year(int(match["year"])))


def _telephone(match: re.Match[str]) -> str:
    """Digit by digit, a pause between groups."""
    return ", ".join(digits(group) for group in re.findall(r"\d+", match[0]))


def _unit(match: re.Match[str]) -> str:
    one, several = UNITS[match["unit"]]
    return _signed(match, f"{written_number(match['number'])} {one if match['number'] == '1' else several}")


def _vulgar(match: re.Match[str]) -> str:
    return ("" if match["whole"] is None else " ") + FRACTIONS[match["sign"]]


def _fraction(match: re.Match[str]) -> str:
    top, bottom = int(match["top"]), int(match["bottom"])
    if top >= bottom:
        return match[0]
    part = PARTS[bottom - 2]
    if top > 1:
        part = "halves" if bottom == 2 else f"{part}s"
    if not match["whole"]:
        return f"{ONES[top]} {part}"
    count = "a" if top == 1 else ONES[top]
    return f"{written_number(match['whole'])} and {count} {part}"


def _percent(match: re.Match[str]) -> str:
    return _signed(match, f"{written_number(match['number'])} percent")


def _versions(match: re.Match[str]) -> str:
    return " point ".join(written_number(part) for part in match[0].split("."))


def _plain(match: re.Match[str]) -> str:
    words = _signed(match, written_number(match["number"]))
    before = " " if match["letter"] is not None else ""
    after = " " if match["unit"] is not None else ""
    return before + words + after


NUMBERS: list[tuple[re.Pattern[str], Callable[[re.Match[str]], str]]] = [
    (re.compile(rf"(?P<whole>(?<=\d))?(?P<sign>[{''.join(FRACTIONS)}])"), _vulgar),
    (
        re.compile(r"(?<![\d/.,])(?:(?P<whole>\d{1,15})\s)?(?P<top>\d)/(?P<bottom>[2-9]|10)(?![\w/]|[.,]\d)"),
        _fraction,
    ),
    (re.compile(r"(?<![\w&])#(?=\d)"), lambda match: "number "),
    (re.compile(rf"{_SIGN}(?P<symbol>[$€£])\s?(?P<number>{_NUMBER}){_MANY}"), _money),
    (re.compile(rf"{_SIGN}\b(?P<code>{_CODE})\s?(?P<number>{_NUMBER}){_MANY}"), _money),
    (re.compile(rf"{_SIGN}{_FREE}(?P<number>{_NUMBER}){_MANY}\s?(?P<symbol>[$€£])"), _money),
    (re.compile(rf"{_SIGN}{_FREE}(?P<number>{_NUMBER}){_MANY}\s?\b(?P<code>{_CODE})\b"), _money),
    (
        re.compile(
            rf"{_FREE}\b(?P<hour>[01]?\d|2[0-3]):(?P<minute>[0-5]\d)(?::(?P<second>[0-5]\d))?(?![\d:])"
            rf"(?:\s?{_HALF})?"
        ),
        _time,
    ),
    (re.compile(rf"{_FREE}\b(?P<hour>1[0-2]|0?[1-9])\s?{_HALF}"), _hour),
    (
        re.compile(
            rf"\(\d{{3}}\)\s?\d{{3}}-\d{{4}}\b|{_FREE}\b{_LOCAL}\b(?!-)|\b\d{{2,4}}(?:-\d{{2,4}}){{2,}}\b"
        ),
        _telephone,
    ),
    (re.compile(rf"{_SIGN}{_FREE}(?P<number>{_NUMBER})\s?%"), _percent),
    (re.compile(rf"{_SIGN}{_FREE}(?P<number>{_NUMBER})\s?(?P<unit>{'|'.join(UNITS)})(?![\w/])"), _unit),
    (
        re.compile(rf"{_FREE}\b(?P<number>\d{{1,3}}(?:,\d{{3}})+|\d+)(?:st|nd|rd|th)\b", re.IGNORECASE),
        lambda match: written_ordinal(match["number"]),
    ),
    (re.compile(rf"{_FREE}\b(?P<year>1[1-9]\d0|20\d0)s\b|[’'](?P<short>[2-9]0)s\b"), _decade),
    (
        re.compile(rf"{_FREE}\b(?P<low>\d+)\s?[-–]\s?(?P<high>\d+)\b(?![-–]?\d|\.\d|,\d)"),
        lambda match: f"{match['low']} to {match['high']}",
    ),
    (re.compile(rf"{_FREE}\b(?:1[1-9]|20)\d\d\b(?![.,]?\d)"), lambda match: year(int(match[0]))),
    (re.compile(r"\b\d+(?:\.\d+){2,}\b"), _versions),
    (
        re.compile(rf"{_SIGN}(?P<letter>(?<=[A-Za-z]))?(?P<number>{_NUMBER})(?P<unit>(?=[A-Za-z]))?"),
        _plain,
    ),
    (re.compile(r"\s&\s"), lambda match: match[0].replace("&", "and")),
]
RULES: list[tuple[re.Pattern[str], Callable[[re.Match[str]], str]]] = [
    (re.compile(r"(?<![\w.,])\.(?=\d)"), lambda match: "0."),
    *abbreviations.RULES,
    *dates.RULES,
    *NUMBERS,
]
