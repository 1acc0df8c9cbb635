"""Numbers, dates, money and abbreviations of an English text in words.

For networks that read letters and have seen few digits. Other text stays as it is. Of several readings the
commoner one is taken: four digits from 1100 to 2099 without a comma are a year. Every rule takes linear time.
"""

from __future__ import annotations

import re
import unicodedata

from tts_core.text import abbreviations, addresses, dates
from tts_core.text.abbreviations import ends_sentence
from tts_core.text.numerals import (
    ONES,
    cardinal,
    digits,
    ordinal,
    plural,
    written_number,
    written_ordinal,
    year,
)
from tts_core.text.rewriting import Rule, rewritten

_DOLLARS = {"US": "US", "AU": "Australian", "A": "Australian", "CA": "Canadian", "C": "Canadian"}
_DOLLARS |= {"NZ": "New Zealand", "HK": "Hong Kong", "S": "Singapore"}
CURRENCIES = {
    **{f"{land}$": (f"{of} dollar", f"{of} dollars", "cent", "cents") for land, of in _DOLLARS.items()},
    "R$": ("real", "reais", "centavo", "centavos"),
    "$": ("dollar", "dollars", "cent", "cents"),
    "€": ("euro", "euros", "cent", "cents"),
    "£": ("pound", "pounds", "penny", "pence"),
    "¥": ("yen", "yen", "sen", "sen"),
}
CODES = {"USD": "$", "EUR": "€", "GBP": "£", "AUD": "AU$", "CAD": "CA$", "JPY": "¥"}
CURRENCIES |= {code: CURRENCIES[symbol] for code, symbol in CODES.items()}
# fmt: off
SIZES = {
    "k": "thousand", "m": "million", "mn": "million", "b": "billion", "bn": "billion", "t": "trillion",
    "tn": "trillion",
}
UNITS = {
    "km/h": "kilometer per hour", "kph": "kilometer per hour", "mph": "mile per hour",
    "m/s": "meter per second", "km": "kilometer", "cm": "centimeter", "mm": "millimeter", "mi": "mile",
    "yd": "yard", "ft": "foot", "kg": "kilogram", "mg": "milligram", "g": "gram", "lbs": "pound",
    "lb": "pound", "oz": "ounce", "ml": "milliliter", "mL": "milliliter", "l": "liter", "L": "liter",
    "gal": "gallon", "tsp": "teaspoon", "tbsp": "tablespoon", "hrs": "hour", "hr": "hour", "mins": "minute",
    "min": "minute", "sec": "second", "ms": "millisecond", "TB": "terabyte", "GB": "gigabyte",
    "MB": "megabyte", "KB": "kilobyte", "GHz": "gigahertz", "MHz": "megahertz", "kHz": "kilohertz",
    "Hz": "hertz", "kW": "kilowatt", "kWh": "kilowatt-hour", "pts": "point", "pt": "point", "%": "percent",
    "¢": "cent", "°C": "degree Celsius", "°F": "degree Fahrenheit", "°": "degree",
}
WORDS = {"in": "inch", "m": "meter", "s": "second"}  # that are also words or letters
# fmt: on
FRACTIONS = {sign: unicodedata.normalize("NFKC", sign).replace("⁄", "/") for sign in "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"}
# bottoms of fractions beyond tenths; 9/11 and 24/7 are none
BOTTOMS = (*range(2, 11), 12, 16, 20, 24, 32, 48, 64, 100, 1000)
# characters that the rules read where a number is beside them, and that may be left elsewhere
SIGNS = "$€£%#&°−½⅓⅔¼¾"

_NUMBER = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?!\d)"
_FREE = r"(?<![\d.,:])"  # not inside a number
_SIGN = r"(?P<sign>(?<![\w.,])[-−–])?"
_SIZE = "|".join(sorted(SIZES, key=len, reverse=True))
_MANY = rf"(?:[\s-](?P<many>thousand|million|billion|trillion)\b|\s?(?P<size>(?i:{_SIZE}))(?!\w))?"
_CODE = "|".join(CODES)
_SYMBOL = rf"(?:(?<![A-Za-z])(?:{'|'.join(_DOLLARS)}|R)\$|[$€£¥]|\b(?:{_CODE}))\s?"
_UNITS = "|".join(map(re.escape, sorted(UNITS, key=len, reverse=True)))
# "in" and "m" are units before an end, a mark, or a word that goes with lengths: not "5 in a row"
_LENGTH = (
    r"(?=\.?(?:\s*+(?:\Z|[,;:!?)×]|[-–—x]\s)|(?<=\.)\s|\s(?:tall|wide|long|deep|high|thick|across|away|above|"
    r"below|apart|of|by|from|in|mark|sprint|dash|race|hurdles|relay|run|final)\b))"
)
_UNIT = (
    rf"(?P<join>[\s-]?)(?:(?P<unit>[%°¢](?![CF])|(?:{_UNITS})(?![\w/'’]))"
    rf"|(?P<word>(?:in|m){_LENGTH}|(?<=\.\d)s|(?<=\.\d\d)s|(?<=\s)s)(?![\w/'’]))"
    r"(?P<stop>\.(?![\w.]))?"
)
_PER = "second|minute|hour|day|night|week|month|year|person|head|pound|mile|gallon|share|user"
_LOCAL = r"[2-9]\d\d-(?:0\d{3}|\d{3}[1-9])"  # a telephone number; a range ends in a round number
_HALF = r"(?P<half>[AaPp](?:\.\s?[Mm]\.|[Mm]\b))"
_DASH = r"(?:[-‐‑‒–—]|--)"
_TAIL = (
    rf"(?:\s?(?:%|[$€£]|°[CF]?|[AaPp]\.?[Mm]\b\.?|{_UNITS}|{_CODE}|(?i:{_SIZE})\b)|s\b|st\b|nd\b|rd\b|th\b)"
)


def spoken(text: str) -> str:
    """Put numbers and abbreviations into words. Everything else stays, white space included."""
    return rewritten(text, RULES)


def _signed(match: re.Match[str], words: str) -> str:
    return f"minus {words}" if match["sign"] else words


def _is_one(match: re.Match[str]) -> bool:
    """Decide whether a unit is singular: also as in "a $5 bill"."""
    before = match.string[max(0, match.start() - 4) : match.start()]
    return match["number"] == "1" or re.search(r"(?<!\w)[Aa]n?\s\Z", before) is not None


def _money(match: re.Match[str]) -> str:
    single, several, cent, cents = CURRENCIES[match["symbol"].strip()]
    unit = single if _is_one(match) else several
    whole, _, fraction = match["number"].replace(",", "").partition(".")
    if many := match["many"] or SIZES.get((match["size"] or "").lower()):
        unit = several if match["number"] == "1" else unit
        return _signed(match, f"{written_number(match['number'])} {many} {unit}")
    if len(fraction) != 2:
        return _signed(match, f"{written_number(match['number'])} {unit}")
    parts = []
    if whole.strip("0") or not int(fraction):
        parts.append(f"{written_number(whole)} {single if whole == '1' else several}")
    if int(fraction):
        parts.append(f"{cardinal(int(fraction))} {cent if int(fraction) == 1 else cents}")
    return _signed(match, " and ".join(parts))


def _time(match: re.Match[str]) -> str:
    hour, minute, second = int(match["hour"]), int(match["minute"]), int(match["second"] or 0)
    words = ONES[hour] if hour < 20 else cardinal(hour)
    if minute > 9:
        words += f" {cardinal(minute)}"
    elif minute:
        words += f" oh {ONES[minute]}"
    elif second:
        words += " hundred"
    elif not match["half"]:
        words = "midnight" if hour == 0 else f"{words} o'clock" if hour < 13 else f"{words} hundred"
    if second or match["part"]:
        part = f" point {digits(match['part'][1:])}" if match["part"] else ""
        words += f" and {cardinal(second)}{part} second{'' if second == 1 and not part else 's'}"
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


def _plural(match: re.Match[str]) -> str:
    written = match["number"]
    is_year = len(written) == 4 and 1100 <= int(written) < 2100
    return plural(year(int(written)) if is_year else written_number(written))


def _chain(match: re.Match[str]) -> str:
    """Read "4-4-2" as its numbers, a telephone number or an ISBN digit by digit, a pause between groups."""
    groups = re.findall(r"\d+", match[0])
    if all(len(group) < 3 and (group == "0" or group[0] != "0") for group in groups):
        return " ".join(map(written_number, groups))
    return ("plus " if match[0][0] == "+" else "") + ", ".join(map(digits, groups))


def _range(match: re.Match[str]) -> str:
    """Put "to" between two quantities, and the first one's currency before the second: "$5-10"."""
    symbol, low, tail, high = (match[name] or "" for name in ("symbol", "low", "tail", "high"))
    if low == match["number"] and not (symbol or tail or high):
        return match[0]
    if symbol and not tail and not high:
        return f"{low} to {symbol}"
    return f"{symbol}{low}{tail} to {high or symbol}"


def _unit(match: re.Match[str]) -> str:
    unit = _named_unit(match, is_one=match["join"] == "-" or _is_one(match))
    return _signed(match, f"{written_number(match['number'])} {unit}{_stop(match)}")


def _named_unit(match: re.Match[str], *, is_one: bool) -> str:
    name, *more = (UNITS[match["unit"]] if match["unit"] else WORDS[match["word"]]).split()
    if not is_one and not name.endswith(("hertz", "percent")):
        name = {"foot": "feet", "inch": "inches"}.get(name, f"{name}s")
    return " ".join((name, *more))


def _stop(match: re.Match[str]) -> str:
    return "." if match["stop"] and ends_sentence(match.string, match.end()) else ""


def _feet(match: re.Match[str]) -> str:
    feet, inches = match["feet"], match["inches"]
    words = f"{feet} {'foot' if feet == '1' else 'feet'}"
    return f"{words} {inches} {'inch' if inches == '1' else 'inches'}" if inches else words


def _fraction(match: re.Match[str]) -> str:
    top, bottom = int(match["top"]), int(match["bottom"])
    if top >= bottom or bottom not in BOTTOMS:
        return match[0]
    part = {2: "half", 4: "quarter"}.get(bottom) or ordinal(bottom)
    if top > 1:
        part = "halves" if bottom == 2 else f"{part}s"
    count = ("an" if part[0] == "e" else "a") if top == 1 and match["whole"] else cardinal(top)
    words = f"{written_number(match['whole'])} and {count} {part}" if match["whole"] else f"{count} {part}"
    if not (match["unit"] or match["word"]):
        return words
    return f"{words} {_named_unit(match, is_one=not match['whole'])}{_stop(match)}"


def _versions(match: re.Match[str]) -> str:
    parts = match[0].split(".")
    if len(parts) == 4 and all(len(part) < 4 and int(part) < 256 for part in parts):
        return " dot ".join(map(digits, parts))
    return " point ".join(map(written_number, parts))


def _plain(match: re.Match[str]) -> str:
    return _signed(match, written_number(match["number"]))


MARKS: list[Rule] = [
    (
        re.compile(r"(?<![\d.,])\d{1,3}(?:\.\d{3})+,\d\d(?![\d.,]*\d)"),  # as Europeans write them
        lambda match: match[0].translate(str.maketrans(".,", ",.")),
    ),
    *addresses.RULES,
    (
        re.compile(r"(?<![\d.,+-])\d{1,3}(?:(?:[\xa0\u2009\u202f]\d{3})+|(?: \d{3})* 000)(?!\d)"),
        lambda match: ",".join(match[0].split()),
    ),
    (
        re.compile(r"(?<=[^\W_])[‘´`′‛＇ʼ](?=[^\W\d_])|(?<=[^\W\d_])[‘´`′‛＇ʼ](?=\d)"),
        lambda match: "'",
    ),
    (
        re.compile(
            r"""(?<![\w.,'’′])(?P<feet>\d{1,2})['’′](?:\s?(?P<inches>1[01]|\d)(?!\d)(?:["”″]|''|’’)?"""
            r"|(?=\s(?:tall|high|wide|long|deep)\b))"
        ),
        _feet,
    ),
    (re.compile(r"(?<=\d)['’‘´`′‛＇ʼ]++(?=\d)"), lambda match: " "),
    (
        re.compile(r"(?<=[^\W_])\*\*(?=\d)|(?<=\d) \*\* (?=\d)|(?<=[^\W_])\^(?=[-−]?\d)"),
        lambda match: " to the power of ",
    ),
    (re.compile(r"(?<=\d)\s?[*×]\s?(?=\d)"), lambda match: " times "),
    (re.compile(r"(?<=\d)\s?x\s?(?=\d)"), lambda match: " by "),
    (re.compile(r"(?<=[\d%])\s?~\s?(?=[$€£]?\d)"), lambda match: "–"),
    (re.compile(r"(?<![\w~])~(?=[$€£]?\d)"), lambda match: "about "),
]
NUMBERS: list[Rule] = [
    (re.compile(f"[{''.join(FRACTIONS)}]"), lambda match: FRACTIONS[match[0]]),
    (re.compile(r"(?<=/\d)\s?[-–]\s?(?=\d)|(?<=/\d\d)\s?[-–]\s?(?=\d)"), lambda match: " to "),
    (
        re.compile(
            r"(?<![\d/.,])(?:(?P<whole>\d{1,15})[\s-])?(?P<top>\d{1,2})/(?P<bottom>\d{1,4})(?:rds?|ths?)?(?![\w/]|[.,]\d)"
            rf"(?:{_UNIT})?"
        ),
        _fraction,
    ),
    (re.compile(r"(?<!\w)(?P<key>[CF])#(?!\w)"), lambda match: f"{match['key']} sharp"),
    (re.compile(r"(?<![\w&])#\d{3,}(?:-\d+)+"), lambda match: f"number {_chain(match)}"),
    (re.compile(r"(?<![\w&])#(?=\d)"), lambda match: "number "),
    (re.compile(r"(?<![\w&#])#(?=[^\W\d_])"), lambda match: "hashtag "),
    (
        re.compile(
            rf"(?:\+?\b\d{{1,3}}[-. ])?(?:\(\d{{3}}\)\s?|\b\d{{3}}[-. ])\d{{3}}[-. ]\d{{4}}\b"
            rf"|(?<!\w)\+\d{{1,3}}(?:[-. ]\d{{2,4}}){{2,4}}\b"
            rf"|{_FREE}\b{_LOCAL}\b(?!-)|\b1-8\d\d(?=-[A-Z])"
            r"|(?<![\w.,:-])\d+(?:[-‐‑–]\d+){2,}(?![-.,:]?\d)"
        ),
        _chain,
    ),
    (re.compile(r"(?<=\d)\s?[-–−]\s?(?=\d{1,15}\s?=)|(?<=\d)−(?=\d)"), lambda match: " minus "),
    (
        re.compile(
            rf"(?<![\w.,:])(?<!\w[-–])(?P<symbol>{_SYMBOL})?(?P<low>\d{{1,2}}:\d\d|{_NUMBER})"
            rf"(?P<tail>{_TAIL})?\s?{_DASH}\s?(?P<high>{_SYMBOL})?(?=(?P<number>{_NUMBER}))"
        ),
        _range,
    ),
    (
        re.compile(rf"(?<=\d)(?P<unit>\s?(?:{_UNITS}))?/(?P<per>{_UNITS}|{_PER})\b"),
        lambda match: f"{match['unit'] or ''} per {UNITS.get(match['per'], match['per'])}",
    ),
    (re.compile(rf"{_SIGN}(?P<symbol>{_SYMBOL})(?P<number>{_NUMBER}){_MANY}(?!s\b)"), _money),
    (
        re.compile(rf"{_SIGN}{_FREE}(?P<number>{_NUMBER}){_MANY}\s?(?P<symbol>[$€£]|\b(?:{_CODE})\b)"),
        _money,
    ),
    (
        re.compile(
            rf"{_FREE}\b(?P<hour>[01]?\d|2[0-3]):(?P<minute>[0-5]\d)"
            rf"(?::(?P<second>[0-5]\d)(?P<part>\.\d{{1,3}})?)?(?![\d:]|\.\d)(?:\s?{_HALF})?"
        ),
        _time,
    ),
    (re.compile(rf"{_FREE}\b(?P<hour>1[0-2]|0?[1-9])\s?{_HALF}"), _hour),
    (re.compile(rf"{_SIGN}{_FREE}(?P<number>{_NUMBER}){_UNIT}"), _unit),
    (
        re.compile(rf"{_FREE}\b(?P<number>\d{{1,3}}(?:,\d{{3}})+|\d+)(?:st|nd|rd|th)\b", re.IGNORECASE),
        lambda match: written_ordinal(match["number"]),
    ),
    (re.compile(rf"(?:[’'](?=[1-9]0s)|[$€£])?{_FREE}(?P<number>\d+)['’]?s\b"), _plural),
    (re.compile(rf"{_FREE}\b(?:1[1-9]|20)\d\d\b(?![.,]?\d)"), lambda match: year(int(match[0]))),
    (re.compile(r"(?<![\d.])\d+(?:\.\d+){2,}"), _versions),
    (
        re.compile(rf"{_FREE}(?P<number>{_NUMBER})(?P<size>M|bn|mn|\s?m(?=\s(?:people|users)\b))(?!\w)"),
        lambda match: f"{written_number(match['number'])} {SIZES[match['size'].strip().lower()]}",
    ),
    (re.compile(rf"{_SIGN}(?P<number>{_NUMBER})"), _plain),
    (re.compile(r"\s&\s"), lambda match: match[0].replace("&", "and")),
]
RULES: list[Rule] = [
    (re.compile(r"(?m)^(?P<item>[^\S\n]*+\d{1,3})[.)](?=[^\S\n]+\S)"), lambda match: f"{match['item']},"),
    *MARKS,
    (re.compile(r"(?<![\w.,])\.(?=\d)"), lambda match: "0."),
    *abbreviations.RULES,
    *dates.RULES,
    *addresses.DOTS,
    *NUMBERS,
]
