"""Matching of regular expressions in Python, which counts its steps: the same number on every machine.

It backtracks as Python's engine does, without its shortcuts, so that a number of steps is at least in
proportion to that engine's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from re import _constants as names  # pyright: ignore[reportAttributeAccessIssue]
from re import _parser as parser  # pyright: ignore[reportAttributeAccessIssue]
from typing import Any

Then = Callable[[int], int | None]  # from a place to the end of the match that goes on there
REPEATS = (names.MAX_REPEAT, names.MIN_REPEAT, names.POSSESSIVE_REPEAT)


class Matcher:
    """A pattern. steps: so far, one for each element that was tried at a place."""

    def __init__(self, pattern: re.Pattern[str]):
        self.flags, self.steps = pattern.flags, 0
        self.tree = parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG)
        self._ones: dict[str, re.Pattern[str]] = {}

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the matches as `finditer` does."""
        self.text, place, is_after_empty = text, 0, False
        while place <= len(text):
            then = partial(_beyond, place) if is_after_empty else _anywhere
            end = self._run([*self.tree], place, then)
            is_after_empty = end == place
            if end is None:
                place += 1
                continue
            yield place, end
            place = end

    def span(self, text: str) -> tuple[int, int] | None:
        """Return the match at the beginning, as `match` does."""
        self.text = text
        end = self._run([*self.tree], 0, _anywhere)
        return None if end is None else (0, end)

    def _run(self, nodes: Sequence[Any], place: int, then: Then) -> int | None:
        """Match nodes from a place on, and what follows them."""
        for index, (name, value) in enumerate(nodes):
            self.steps += 1
            one = self._one(name, value)
            if one is not None:
                if place >= len(self.text) or not one(self.text[place]):
                    return None
                place += 1
            elif name is names.AT:
                if not self._at(value, place):
                    return None
            elif name in (names.ASSERT, names.ASSERT_NOT):
                if self._looks(value, place) is not (name is names.ASSERT):
                    return None
            else:
                return self._branching(name, value, place, partial(self._go_on, nodes[index + 1 :], then))
        return then(place)

    def _go_on(self, rest: Sequence[Any], then: Then, place: int) -> int | None:
        return self._run(rest, place, then)

    def _branching(self, name: Any, value: Any, place: int, then: Then) -> int | None:
        """Match a node that may end at several places."""
        if name is names.SUBPATTERN:
            return self._run([*value[3]], place, then)
        if name is names.BRANCH:
            ends = (self._run([*branch], place, then) for branch in value[1])
            return next((end for end in ends if end is not None), None)
        if name is names.ATOMIC_GROUP:
            end = self._run([*value], place, _anywhere)
            return None if end is None else then(end)
        assert name in REPEATS, f"{name} is not known here"
        least, most, inner = value[0], int(value[1]), [*value[2]]
        if len(inner) == 1 and (one := self._one(*inner[0])) is not None:
            return self._characters(name, least, most, one, place, then)
        if name is names.POSSESSIVE_REPEAT:
            count = 0
            while count < most and (end := self._run(inner, place, _anywhere)) not in (None, place):
                place, count = end, count + 1
            return then(place) if count >= least else None
        return self._groups(name is names.MIN_REPEAT, least, most, inner, place, then)

    def _characters(
        self, name: Any, least: int, most: int, one: Callable[[str], bool], place: int, then: Then
    ) -> int | None:
        """Repeat an element of one character."""
        most, stop = min(most, len(self.text) - place), place
        while stop - place < most and one(self.text[stop]):
            self.steps += 1
            stop += 1
        if stop - place < least:
            return None
        ends = range(stop, place + least - 1, -1)
        if name is names.MIN_REPEAT:
            ends = range(place + least, stop + 1)
        for at in ends if name is not names.POSSESSIVE_REPEAT else (stop,):
            if (end := then(at)) is not None:
                return end
        return None

    def _groups(
        self, is_lazy: bool, least: int, most: int, inner: list[Any], place: int, then: Then
    ) -> int | None:
        """Repeat an element of several."""

        def more(count: int, place: int) -> int | None:
            if count >= most:
                return None
            return self._run(inner, place, lambda at: None if at == place else go_on(count + 1, at))

        def go_on(count: int, place: int) -> int | None:
            if count < least:
                return more(count, place)
            ways = [lambda: more(count, place), lambda: then(place)]
            ends = (way() for way in (reversed(ways) if is_lazy else ways))
            return next((end for end in ends if end is not None), None)

        return go_on(0, place)

    def _looks(self, value: Any, place: int) -> bool:
        direction, inner = value
        if direction < 0:
            width = inner.getwidth()[1]
            return place >= width and self._run([*inner], place - width, _anywhere) is not None
        return self._run([*inner], place, _anywhere) is not None

    def _at(self, value: Any, place: int) -> bool:
        signs = {
            names.AT_BEGINNING: r"^",
            names.AT_BEGINNING_STRING: r"\A",
            names.AT_BOUNDARY: r"\b",
            names.AT_NON_BOUNDARY: r"\B",
            names.AT_END: r"$",
            names.AT_END_STRING: r"\Z",
        }
        found = self._compiled(signs[value])
        return found.match(self.text, place) is not None

    def _one(self, name: Any, value: Any) -> Callable[[str], bool] | None:
        """Return the test of an element that is one character; None for any other."""
        if name is names.LITERAL or name is names.NOT_LITERAL:
            sign = re.escape(chr(value))
            return self._test(sign if name is names.LITERAL else f"[^{sign}]")
        if name is names.ANY:
            return self._test(".")
        return self._test(f"[{''.join(map(_written, value))}]") if name is names.IN else None

    def _test(self, written: str) -> Callable[[str], bool]:
        found = self._compiled(written)
        return lambda character: found.match(character) is not None

    def _compiled(self, written: str) -> re.Pattern[str]:
        if written not in self._ones:
            self._ones[written] = re.compile(written, self.flags & ~re.DEBUG)
        return self._ones[written]


def _anywhere(place: int) -> int | None:
    return place


def _beyond(start: int, place: int) -> int | None:
    """End a match that may not be empty."""
    return place if place > start else None


def _written(item: tuple[Any, Any]) -> str:
    """Write an item of a class of characters."""
    name, value = item
    if name is names.NEGATE:
        return "^"
    if name is names.LITERAL:
        return re.escape(chr(value))
    if name is names.RANGE:
        return "-".join(re.escape(chr(end)) for end in value)
    categories = {
        names.CATEGORY_DIGIT: r"\d",
        names.CATEGORY_NOT_DIGIT: r"\D",
        names.CATEGORY_SPACE: r"\s",
        names.CATEGORY_NOT_SPACE: r"\S",
        names.CATEGORY_WORD: r"\w",
        names.CATEGORY_NOT_WORD: r"\W",
    }
    return categories[value]
