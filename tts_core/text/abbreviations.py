"""English abbreviations in full.

"St." before a name is a saint and after one a street; "Dr." a doctor or a drive.
"""

from __future__ import annotations

import re

from tts_core.text.rewriting import Rule

# fmt: off
TITLES = {
    "Mr": "Mister", "Mrs": "Missus", "Ms": "Miss", "Messrs": "Messieurs", "Prof": "Professor",
    "Rev": "Reverend", "Hon": "Honorable", "Gov": "Governor", "Sen": "Senator", "Rep": "Representative",
    "Pres": "President", "Gen": "General", "Col": "Colonel", "Maj": "Major", "Capt": "Captain",
    "Lt": "Lieutenant", "Sgt": "Sergeant", "Cpl": "Corporal", "Adm": "Admiral", "Mt": "Mount", "Ft": "Fort",
}
AFTER_NAMES = {
    "Jr": "Junior", "Sr": "Senior", "Ave": "Avenue", "Blvd": "Boulevard", "Rd": "Road", "Ln": "Lane",
    "Hwy": "Highway", "Inc": "Incorporated", "Corp": "Corporation", "Co": "Company", "Ltd": "Limited",
}
EITHER = {"Dr": ("Doctor", "Drive"), "St": ("Saint", "Street")}  # before a name, after one
ANYWHERE = {
    "e.g": "for example", "i.e": "that is", "vs": "versus", "approx": "approximately", "etc": "et cetera",
    "dept": "department", "govt": "government", "ph.d": "PHD", "phd": "PHD",
}
BEFORE_NUMBERS = {
    "No": "number", "Nos": "numbers", "Vol": "volume", "vol": "volume", "Ch": "chapter", "ch": "chapter",
    "Sec": "section", "Fig": "figure", "fig": "figure", "Eq": "equation", "p": "page", "pp": "pages",
    "Apt": "apartment", "apt": "apartment", "Ste": "suite", "Rm": "room", "Bldg": "building", "Rt": "route",
    "Est": "established", "est": "established", "Ext": "extension", "ext": "extension",
}
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
    "November", "December",
)
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
# fmt: on
SHORT_MONTHS = {month[:3]: month for month in MONTHS if len(month) > 3} | {"Sept": "September"}
SHORT_DAYS = {day[:3]: day for day in DAYS} | {"Tues": "Tuesday", "Thur": "Thursday", "Thurs": "Thursday"}
MAY_END = ("etc.", "dept.", "govt.", "ph.d.")  # of ANYWHERE, with the full stop of a sentence
# words after which a full stop does not end a sentence: always, and before a digit
_SHORT = frozenset(map(str.lower, (*TITLES, *EITHER, *(set(ANYWHERE) - {"etc"}), "cf", "al")))
_SHORT_BEFORE_NUMBERS = frozenset((*BEFORE_NUMBERS, *map(str.lower, BEFORE_NUMBERS), *SHORT_MONTHS))
LONGEST = max(map(len, (*_SHORT, *_SHORT_BEFORE_NUMBERS)))
# fmt: off
# words that begin a sentence with a capital and are not names
NO_NAMES = frozenset((
    "A", "An", "And", "As", "At", "But", "By", "For", "From", "He", "Her", "His", "I", "If", "In", "It",
    "Its", "My", "Near", "No", "Not", "Of", "Off", "On", "Or", "Our", "Over", "Past", "She", "So", "That",
    "The", "Their", "Then", "There", "They", "This", "To", "Under", "We", "When", "Where", "With", "You",
    "Your", "Dear", "Old",
))
# fmt: on

_NEXT_SENTENCE = re.compile(r"[\"'”’)]*\s++[\"'“‘(]?[A-Z]|\s*+\Z")
_INITIALS = re.compile(r"(?!(?:[Ii]|[AaPp]\.[Mm])\Z)[^\W\d_](?:\.[^\W\d_])*+")
NEXT_NAME = re.compile(r"\s++([A-Z][\w'’]*)")


def ends_sentence(text: str, end: int) -> bool:
    """Decide whether a full stop right before `end` also ends its sentence."""
    return _NEXT_SENTENCE.match(text, end) is not None


def is_short(word: str, following: str) -> bool:
    """Decide whether a full stop after a word belongs to it, rather than to its sentence.

    word: with the full stops inside it.  following: the next character; some are short before a digit only.
    """
    if word.lower() in _SHORT or word in SHORT_DAYS or _INITIALS.fullmatch(word):
        return True
    return word in _SHORT_BEFORE_NUMBERS and following.isdecimal()


def _stop(match: re.Match[str]) -> str:
    return "." if ends_sentence(match.string, match.end()) else ""


def _name_before(text: str, end: int) -> str | None:
    """The capitalized word before `end`, white space between; None if there is none."""
    stop = end
    while stop and text[stop - 1].isspace():
        stop -= 1
    start = stop
    while start and (text[start - 1].isalnum() or text[start - 1] in "_'’"):
        start -= 1
    name = text[start:stop].lstrip("'’")
    return name if stop < end and re.match("[A-Z]", name) else None


def _after_name(match: re.Match[str]) -> str:
    return AFTER_NAMES[match["word"]] + _stop(match)


def _either(match: re.Match[str]) -> str:
    before, after = EITHER[match["word"]]
    previous, following = (
        _name_before(match.string, match.start()),
        NEXT_NAME.match(match.string, match.end()),
    )
    follows_name = previous is not None and previous not in NO_NAMES
    precedes_name = following is not None and following[1] not in NO_NAMES
    if precedes_name and not follows_name:
        return before
    if not (follows_name or precedes_name) and before == "Doctor":
        return before + _stop(match)
    return after + _stop(match)


def _anywhere(match: re.Match[str]) -> str:
    word = match["word"].lower()
    return ANYWHERE[word] + (_stop(match) if match[0].lower() in MAY_END else "")


RULES: list[Rule] = [
    (
        re.compile(rf"\b(?P<title>{'|'.join(TITLES)})\.(?=\s)"),
        lambda match: TITLES[match["title"]],
    ),
    (re.compile(rf"\b(?P<word>{'|'.join(EITHER)})\.(?!\w)"), _either),
    (re.compile(rf"(?<=\w\s|,\s)\b(?P<word>{'|'.join(AFTER_NAMES)})\.(?!\w)"), _after_name),
    (
        re.compile(rf"\b(?P<word>{'|'.join(map(re.escape, ANYWHERE))})\.(?!\w)", re.IGNORECASE),
        _anywhere,
    ),
    # without full stops, as the British write them
    (re.compile(r"\b(?P<title>Mr|Mrs|Ms)(?=\s[A-Z])"), lambda match: TITLES[match["title"]]),
    (re.compile(r"\b(?P<word>Dr|St)(?=\s[A-Z][a-z])"), _either),
    (re.compile(r"\b(?P<word>vs|etc|PhD)\b"), _anywhere),
    (
        re.compile(rf"\b(?P<word>{'|'.join(BEFORE_NUMBERS)})\.(?=\s?\d)"),
        lambda match: BEFORE_NUMBERS[match["word"]],
    ),
]
