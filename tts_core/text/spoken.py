"""Numbers and abbreviations of an English text, written as they are said.

For networks that read letters and have seen few digits. Text without them stays as it is. Where a writing
has several readings the commoner one is taken: four digits from 1100 to 2099 without a comma are a year,
"St." in front of a name is a saint and behind one a street.
"""

from __future__ import annotations

import re
from collections.abc import Callable

# fmt: off
ONES = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)
TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
# fmt: on
SCALES = ((10**12, "trillion"), (10**9, "billion"), (10**6, "million"), (1000, "thousand"), (100, "hundred"))
LARGEST = 10**15 - 1
IRREGULAR = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}

TITLES = {"Mr": "Mister", "Mrs": "Missus", "Ms": "Miss", "Prof": "Professor", "Rev": "Reverend"}
BEHIND_NAMES = {"Jr": "Junior", "Sr": "Senior", "Ave": "Avenue", "Blvd": "Boulevard", "Rd": "Road"}
EITHER = {"Dr": ("Doctor", "Drive"), "St": ("Saint", "Street")}  # in front of a name, behind one
ANYWHERE = {
    "e.g": "for example",
    "i.e": "that is",
    "vs": "versus",
    "approx": "approximately",
    "etc": "et cetera",
}
BEFORE_NUMBERS = {
    "No": "number",
    "Nos": "numbers",
    "Vol": "volume",
    "Ch": "chapter",
    "Fig": "figure",
    "p": "page",
}
# capitals that begin a sentence and are no names
# fmt: off
NO_NAMES = frozenset((
    "A", "An", "And", "As", "At", "But", "By", "For", "From", "He", "Her", "His", "I", "If", "In", "It",
    "Its", "My", "Near", "No", "Not", "Of", "Off", "On", "Or", "Our", "Over", "Past", "She", "So", "That",
    "The", "Their", "Then", "There", "They", "This", "To", "Under", "We", "When", "Where", "With", "You",
    "Your", "Dear", "Old",
))
# fmt: on

CURRENCIES = {
    "$": ("dollar", "dollars", "cent", "cents"),
    "€": ("euro", "euros", "cent", "cents"),
    "£": ("pound", "pounds", "penny", "pence"),
}
CODES = {"USD": "$", "EUR": "€", "GBP": "£"}

MOST_DIGITS = 15  # of a number that is read as one; longer ones are read digit by digit

_NUMBER = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?!\d)"
_FREE = r"(?<![\d.,:])"  # no digit, and no part of a number, stands in front
_SIGN = r"(?P<sign>(?<![\w.,])[-−])?"
_MANY = r"(?:\s(?P<many>thousand|million|billion|trillion)\b)?"
_CODE = "|".join(CODES)


def spoken(text: str) -> str:
    """The text with its numbers and abbreviations in words. Everything else stays, white space included."""
    for pattern, say in RULES:
        text = pattern.sub(say, text)
    return text


def _number(written: str) -> str:
    """Digits with commas and a decimal point, in words."""
    whole, point, fraction = written.replace(",", "").partition(".")
    if (len(whole) > 1 and whole.startswith("0")) or len(whole) > MOST_DIGITS:
        words = digits(whole)
    else:
        words = cardinal(int(whole))
    return f"{words} point {digits(fraction)}" if point else words


def _signed(match: re.Match[str], words: str) -> str:
    return f"minus {words}" if match["sign"] else words


def _money(match: re.Match[str]) -> str:
    groups = match.groupdict()
    code = groups.get("symbol") or CODES[groups["code"]]
    one, several, cent, cents = CURRENCIES[code]
    whole, _, fraction = match["number"].replace(",", "").partition(".")
    if match["many"]:
        return _signed(match, f"{_number(match['number'])} {match['many']} {several}")
    if len(fraction) != 2:
        unit = one if match["number"] == "1" else several
        return _signed(match, f"{_number(match['number'])} {unit}")
    parts = []
    if int(whole) or not int(fraction):
        parts.append(f"{_number(whole)} {one if int(whole) == 1 else several}")
    if int(fraction):
        parts.append(f"{cardinal(int(fraction))} {cent if int(fraction) == 1 else cents}")
    return _signed(match, " and ".join(parts))


def _time(match: re.Match[str]) -> str:
    hour, minute, second = int(match["hour"]), int(match["minute"]), match["second"]
    half = f" {match['half'][0].lower()} m" if match["half"] else ""
    words = ONES[hour] if hour < 20 else cardinal(hour)
    if minute or second:
        words += f" {cardinal(minute) if minute > 9 else f'oh {ONES[minute]}' if minute else 'hundred'}"
    elif not half:
        words = "midnight" if hour == 0 else f"{words} o'clock" if hour < 13 else f"{words} hundred"
    if second:
        words += f" and {cardinal(int(second))} second{'s' * (int(second) != 1)}"
    full_stop = "." if half and match["half"].endswith(".") and _ends_sentence(match) else ""
    return words + half + full_stop


def _ends_sentence(match: re.Match[str]) -> bool:
    """Whether the match's last full stop is also that of its sentence."""
    behind = match.string[match.end() :]
    return not behind.strip() or re.match(r"[\"'”’)]*\s+[\"'“‘(]?[A-Z]", behind) is not None


def _decade(match: re.Match[str]) -> str:
    if match["short"]:
        return plural(cardinal(int(match["short"])))
    return plural(year(int(match["year"])))


def _groups(match: re.Match[str]) -> str:
    """A telephone number: digit by digit, a pause between groups."""
    return ", ".join(digits(group) for group in re.findall(r"\d+", match[0]))


def _in_front(match: re.Match[str]) -> str:
    return TITLES[match["title"]]


def _behind_name(match: re.Match[str]) -> str:
    return BEHIND_NAMES[match["word"]] + "." * _ends_sentence(match)


def _either(match: re.Match[str]) -> str:
    before, behind = EITHER[match["word"]]
    name_in_front = match["name"] is not None and match["name"] not in NO_NAMES
    behind_it = re.match(r"\s+([A-Z][\w'’]*)", match.string[match.end() :])
    name_behind = behind_it is not None and behind_it[1] not in NO_NAMES
    lead = match["lead"] or ""
    if name_behind and not name_in_front:
        return lead + before
    if not (name_in_front or name_behind) and before == "Doctor":
        return f"{lead}{before}" + "." * _ends_sentence(match)
    return f"{lead}{behind}" + "." * _ends_sentence(match)


def _anywhere(match: re.Match[str]) -> str:
    return ANYWHERE[match["word"].lower()] + "." * (match["word"].lower() == "etc" and _ends_sentence(match))


RULES: list[tuple[re.Pattern[str], Callable[[re.Match[str]], str]]] = [
    (re.compile(r"(?<![\w.,])\.(?=\d)"), lambda match: "0."),
    (re.compile(rf"\b(?P<title>{'|'.join(TITLES)})\.(?=\s)"), _in_front),
    (re.compile(rf"(?P<lead>\b(?P<name>[A-Z][\w'’]*)\s+)?\b(?P<word>{'|'.join(EITHER)})\.(?!\w)"), _either),
    (re.compile(rf"(?<=\w\s|,\s)\b(?P<word>{'|'.join(BEHIND_NAMES)})\.(?!\w)"), _behind_name),
    (
        re.compile(rf"\b(?P<word>{'|'.join(map(re.escape, ANYWHERE))})\.(?!\w)", re.IGNORECASE),
        _anywhere,
    ),
    (
        re.compile(rf"\b(?P<word>{'|'.join(BEFORE_NUMBERS)})\.(?=\s?\d)"),
        lambda match: BEFORE_NUMBERS[match["word"]],
    ),
    (re.compile(rf"{_SIGN}(?P<symbol>[$€£])\s?(?P<number>{_NUMBER}){_MANY}"), _money),
    (re.compile(rf"{_SIGN}\b(?P<code>{_CODE})\s?(?P<number>{_NUMBER}){_MANY}"), _money),
    (re.compile(rf"{_SIGN}{_FREE}(?P<number>{_NUMBER}){_MANY}\s?(?P<symbol>[$€£])"), _money),
    (re.compile(rf"{_SIGN}{_FREE}(?P<number>{_NUMBER}){_MANY}\s?\b(?P<code>{_CODE})\b"), _money),
    (
        re.compile(
            rf"{_FREE}\b(?P<hour>[01]?\d|2[0-3]):(?P<minute>[0-5]\d)(?::(?P<second>[0-5]\d))?(?![\d:])"
            r"(?:\s?(?P<half>[AaPp](?:\.\s?[Mm]\.|[Mm]\b)))?"
        ),
        _time,
    ),
    (
        re.compile(
            rf"{_FREE}\b(?P<hour>1[0-2]|0?[1-9])(?P<minute>)(?P<second>)\s?(?P<half>[AaPp](?:\.\s?[Mm]\.|[Mm]\b))"
        ),
        lambda match: (
            f"{ONES[int(match['hour'])]} {match['half'][0].lower()} m"
            + "." * (match["half"].endswith(".") and _ends_sentence(match))
        ),
    ),
    (re.compile(r"\b\d{2,4}(?:-\d{2,4}){2,}\b"), _groups),
    (
        re.compile(rf"{_SIGN}{_FREE}(?P<number>{_NUMBER})\s?%"),
        lambda m: _signed(m, f"{_number(m['number'])} percent"),
    ),
    (
        re.compile(
            rf"{_FREE}\b(?P<number>\d{{1,3}}(?:,\d{{3}})+|\d{{1,15}})(?:st|nd|rd|th)\b", re.IGNORECASE
        ),
        lambda match: ordinal(int(match["number"].replace(",", ""))),
    ),
    (re.compile(rf"{_FREE}\b(?P<year>1[1-9]\d0|20\d0)s\b|[’'](?P<short>[2-9]0)s\b"), _decade),
    (
        re.compile(rf"{_FREE}\b(?P<low>\d+)\s?[-–]\s?(?P<high>\d+)\b(?![-–]?\d|\.\d|,\d)"),
        lambda match: f"{match['low']} to {match['high']}",
    ),
    (re.compile(rf"{_FREE}\b(?:1[1-9]|20)\d\d\b(?![.,]?\d)"), lambda match: year(int(match[0]))),
    (
        re.compile(r"\b\d+(?:\.\d+){2,}\b"),
        lambda match: " point ".join(_number(part) for part in match[0].split(".")),
    ),
    (
        re.compile(rf"{_SIGN}(?P<letter>(?<=[A-Za-z]))?(?P<number>{_NUMBER})(?P<unit>(?=[A-Za-z]))?"),
        lambda m: (
            " " * (m["letter"] is not None) + _signed(m, _number(m["number"])) + " " * (m["unit"] is not None)
        ),
    ),
    (re.compile(r"\s&\s"), lambda match: match[0].replace("&", "and")),
]


def cardinal(number: int) -> str:
    """0 .. LARGEST: "one thousand two hundred five". Raises ValueError outside."""
    if not 0 <= number <= LARGEST:
        raise ValueError(f"number: {number} is outside 0 .. {LARGEST}")
    if number < 20:
        return ONES[number]
    if number < 100:
        return TENS[number // 10] + (f"-{ONES[number % 10]}" if number % 10 else "")
    size, name = next(scale for scale in SCALES if number >= scale[0])
    rest = f" {cardinal(number % size)}" if number % size else ""
    return f"{cardinal(number // size)} {name}{rest}"


def ordinal(number: int) -> str:
    """0 .. LARGEST: "twenty-first"."""
    words = cardinal(number)
    start = max(words.rfind(" "), words.rfind("-")) + 1
    last = words[start:]
    if last in IRREGULAR:
        return words[:start] + IRREGULAR[last]
    return words[:-1] + "ieth" if last.endswith("y") else words + "th"


def digits(text: str) -> str:
    """One by one: "zero zero seven"."""
    return " ".join(ONES[int(digit)] for digit in text)


def year(number: int) -> str:
    """1100 .. 2099 as years are said: "nineteen oh five", "two thousand five", "twenty twenty-four"."""
    century, rest = divmod(number, 100)
    if century % 10 == 0 and rest < 10:
        return cardinal(number)
    if rest == 0:
        return f"{cardinal(century)} hundred"
    return f"{cardinal(century)} {f'oh {ONES[rest]}' if rest < 10 else cardinal(rest)}"


def plural(words: str) -> str:
    """ "nineteen nineties" of "nineteen ninety"."""
    return words[:-1] + "ies" if words.endswith("y") else words + ("es" if words.endswith("x") else "s")
