"""Weight maps as data, and the plan that checks checkpoint against model before a tensor is read."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from converters.rules.transforms import FOLD_WEIGHT_NORM, SAME, Shape, Transform
from tts_core.errors import CheckpointError

_SHOWN = 40  # listed names per kind of fault


@dataclass(frozen=True)
class Rule:
    """Map of one source tensor, or several in order, to one target; `{}` is an index that all share.

    optional: one of several published forms of the target; its sources may be missing. (Some rule must still
    fill the target exactly once.)
    For layers that a checkpoint may contain fused, one source maps to several targets: `dst` and `how` are
    tuples of equal length. This stays strict: the source is claimed once, each target is filled once, and the
    transforms of `split_rows` require the exact total of rows.
    """

    src: str | tuple[str, ...]
    dst: str | tuple[str, ...]
    how: Transform | tuple[Transform, ...] = SAME
    optional: bool = False

    def moves_to(self) -> list[tuple[str, Transform]]:
        """List each target pattern with its transform."""
        hows = self.how if isinstance(self.how, tuple) else (self.how,)
        return list(zip(_tuple(self.dst), hows, strict=True))


@dataclass(frozen=True)
class Drop:
    """A source tensor that is not converted, and the reason. optional: it may be missing."""

    src: str
    why: str
    optional: bool = False


def same_names(names: Iterable[str]) -> list[Rule | Drop]:
    """Map names to themselves, where the published names are the canonical ones."""
    return [Rule(name, name) for name in names]


def convolution(theirs: str, ours: str) -> list[Rule | Drop]:
    """Map a convolution in one of three forms: old weight norm, torch's parametrization, or folded."""
    old = (f"{theirs}.weight_g", f"{theirs}.weight_v")
    new = tuple(f"{theirs}.parametrizations.weight.original{i}" for i in (0, 1))
    return [
        Rule(old, f"{ours}.weight", FOLD_WEIGHT_NORM, optional=True),
        Rule(new, f"{ours}.weight", FOLD_WEIGHT_NORM, optional=True),
        Rule(f"{theirs}.weight", f"{ours}.weight", optional=True),
        Rule(f"{theirs}.bias", f"{ours}.bias"),
    ]


@dataclass(frozen=True)
class Move:
    """One target, its sources and the transform."""

    sources: tuple[str, ...]
    target: str
    how: Transform
    shape: Shape


def assigned(
    rules: Sequence[Rule | Drop],
    source_shapes: Mapping[str, Shape],
    target_shapes: Mapping[str, Shape],
    *,
    what: str = "checkpoint",
) -> list[Move]:
    """List the moves that fill every target, in the order of `target_shapes`. Reads no tensor.

    Raises one CheckpointError, starting with `what`, that lists every fault: sources that are missing,
    claimed twice or by no rule; targets filled twice or unknown to the model; wrong shapes; rules that match
    nothing.
    """
    claims: dict[str, int] = dict.fromkeys(source_shapes, 0)
    moves: dict[str, Move] = {}
    missing, unexpected, twice, shapes, idle = faults = [list[str]() for _ in range(5)]
    reported: set[str] = set()  # targets with a source that is already listed as missing

    waiting: list[Rule] = []
    for rule in rules:
        groups = list(_matches(rule, source_shapes))
        if not groups and isinstance(rule, Rule):
            waiting.append(rule)
        elif not groups and not rule.optional:
            idle += _tuple(rule.src)
        for index, names in groups:
            absent = [name for name in names if name not in source_shapes]
            for name in names:
                if name in claims:
                    claims[name] += 1
            if isinstance(rule, Drop):
                continue
            missing += absent
            for pattern, how in rule.moves_to():
                target = _fill(pattern, index)
                if absent:
                    reported.add(target)
                    continue
                if target not in target_shapes:
                    unexpected.append(f"{' + '.join(names)} (the model has no {target})")
                    continue
                if target in moves:
                    twice.append(
                        f"{target} from {' + '.join(moves[target].sources)} and from {' + '.join(names)}"
                    )
                    continue
                fault = _shape_fault(how, [source_shapes[name] for name in names], target_shapes[target])
                if fault:
                    shapes.append(f"{' + '.join(names)} has {fault}")
                moves[target] = Move(names, target, how, target_shapes[target])

    needed = dict.fromkeys(name for name in target_shapes if name not in moves and name not in reported)
    missing += _sources_of(needed, rules)
    for rule in waiting:
        if not rule.optional and not any(_has(pattern, needed) for pattern in _tuple(rule.dst)):
            idle.append(" + ".join(_tuple(rule.src)))
    unexpected += [name for name, count in claims.items() if count == 0]
    twice += [f"{name} claimed by {count} rules" for name, count in claims.items() if count > 1]

    if any(faults):
        labels = ("missing", "unexpected", "filled twice", "wrong shape", "rule without a source")
        listed = [f"{label}: {_listing(names)}" for label, names in zip(labels, faults, strict=True) if names]
        raise CheckpointError(f"{what}: the tensors do not fit the configured model; {'; '.join(listed)}")
    return [moves[target] for target in target_shapes]


def dropped(rules: Iterable[Rule | Drop], source_names: Iterable[str]) -> dict[str, str]:
    """Map the dropped source names to their reasons."""
    names = list(source_names)
    drops = [rule for rule in rules if isinstance(rule, Drop)]
    return {name: rule.why for rule in drops for name in names if _index(rule.src, name) is not None}


def _matches(
    rule: Rule | Drop, names: Mapping[str, Shape]
) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Yield (index, source names) for every index with at least one of the rule's sources."""
    patterns = _tuple(rule.src)
    if not any("{}" in pattern for pattern in patterns):
        indices = [()] if any(pattern in names for pattern in patterns) else []
    else:
        found = (_index(pattern, name) for pattern in patterns for name in names)
        indices = list(dict.fromkeys(index for index in found if index is not None))
    for index in indices:
        yield index, tuple(_fill(pattern, index) for pattern in patterns)


def _index(pattern: str, name: str) -> tuple[str, ...] | None:
    """Return the indices that turn `pattern` into `name`, or None."""
    if "{}" not in pattern:
        return () if pattern == name else None
    match = _compiled(pattern).fullmatch(name)
    return match.groups() if match else None


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(re.escape(pattern).replace(r"\{\}", r"(0|[1-9][0-9]*)"))


def _fill(pattern: str, index: tuple[str, ...]) -> str:
    return pattern.format(*index)


def _has(pattern: str, names: Mapping[str, None]) -> bool:
    """Return True if the pattern is one of the names, at any index."""
    if "{}" not in pattern:
        return pattern in names
    return any(_index(pattern, name) is not None for name in names)


def _sources_of(targets: Iterable[str], rules: Sequence[Rule | Drop]) -> Iterator[str]:
    """Name the missing sources of each target, from its first rule.

    A converted folder has a rule for each tensor, so literal names are looked up.
    """
    literal: dict[str, tuple[int, Rule]] = {}
    indexed: list[tuple[int, str, Rule]] = []
    for number, rule in enumerate(rules):
        if isinstance(rule, Drop):
            continue
        for pattern in _tuple(rule.dst):
            if "{}" in pattern:
                indexed.append((number, pattern, rule))
            else:
                literal.setdefault(pattern, (number, rule))
    for target in targets:
        found = [(*literal[target], ())] if target in literal else []
        matches = ((number, rule, _index(pattern, target)) for number, pattern, rule in indexed)
        found += [(number, rule, index) for number, rule, index in matches if index is not None]
        if found:
            _, rule, index = min(found, key=lambda item: item[0])
            yield " + ".join(_fill(source, index) for source in _tuple(rule.src))
        else:
            yield f"a rule for {target}"


def _shape_fault(how: Transform, sources: list[Shape], target: Shape) -> str | None:
    try:
        given = how.shape(*sources)
    except ValueError as fault:
        return str(fault)
    except IndexError:
        return f"shape {', '.join(map(str, sources))}, which has too few axes"
    return (
        None
        if given == target
        else f"shape {', '.join(map(str, sources))}, which gives {given}, expected {target}"
    )


def _listing(names: list[str]) -> str:
    rest = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def _tuple(names: str | tuple[str, ...]) -> tuple[str, ...]:
    return names if isinstance(names, tuple) else (names,)
