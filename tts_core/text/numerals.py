"""Whole numbers in English words: cardinals, ordinals, digits, years, plurals.

A number with more than MOST_DIGITS digits is read digit by digit.
"""

from __future__ import annotations

# fmt: off
ONES = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)
TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
# fmt: on
SCALES = ((10**12, "trillion"), (10**9, "billion"), (10**6, "million"), (1000, "thousand"), (100, "hundred"))
MOST_DIGITS = 15
LARGEST = 10**MOST_DIGITS - 1
IRREGULAR = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}


def cardinal(number: int) -> str:
    """Name a number from 0 to LARGEST: "one thousand two hundred five". Raises ValueError outside."""
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
    """Name the place of a number from 0 to LARGEST: "twenty-first"."""
    words = cardinal(number)
    start = max(words.rfind(" "), words.rfind("-")) + 1
    last = words[start:]
    if last in IRREGULAR:
        return words[:start] + IRREGULAR[last]
    return words[:-1] + "ieth" if last.endswith("y") else words + "th"


def digits(written: str) -> str:
    """Name every digit: "zero zero seven"."""
    return " ".join(ONES[int(digit)] for digit in written)


def year(number: int) -> str:
    """Name a year from 1100 to 2099: "nineteen oh five", "two thousand five", "twenty twenty-four"."""
    century, rest = divmod(number, 100)
    if century % 10 == 0 and rest < 10:
        return cardinal(number)
    if rest == 0:
        return f"{cardinal(century)} hundred"
    return f"{cardinal(century)} {f'oh {ONES[rest]}' if rest < 10 else cardinal(rest)}"


def plural(words: str) -> str:
    """Name several: "nineteen nineties" from "nineteen ninety", "hundreds" from "one hundred"."""
    words = words.removeprefix("one ")
    return words[:-1] + "ies" if words.endswith("y") else words + ("es" if words.endswith("x") else "s")


def written_number(written: str) -> str:
    """Name digits with commas and a decimal point; digit by digit after a leading zero or if too long."""
    whole, point, fraction = written.replace(",", "").partition(".")
    if (len(whole) > 1 and whole.startswith("0")) or len(whole) > MOST_DIGITS:
        words = digits(whole)
    else:
        words = cardinal(int(whole))
    return f"{words} point {digits(fraction)}" if point else words


def written_ordinal(written: str) -> str:
    """Name the place of digits with commas; digit by digit if too long, the last one as an ordinal."""
    whole = written.replace(",", "")
    if len(whole) <= MOST_DIGITS:
        return ordinal(int(whole))
    return f"{digits(whole[:-1])} {ordinal(int(whole[-1]))}"
