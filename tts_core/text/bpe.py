"""Byte-pair encoding of integers, for MARS5's text and codes and MetaVoice's text.

Sennrich, Haddow and Birch, "Neural machine translation of rare words with subword units", arXiv:1508.07909.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from heapq import heapify, heappop, heappush

Pairs = Mapping[tuple[int, int], int]  # two adjacent ids → the id that replaces them


def merge(ids: Sequence[int], pairs: Pairs) -> list[int]:
    """Replace adjacent pairs until no known pair is left: the lowest new id first, of equals the leftmost.

    If every new id is larger than the two that it replaces, as in a table trained merge by merge, this equals
    replacing all occurrences of the best pair from left to right in each round. Takes O(n log n).
    """
    parts, end = list(ids), len(ids)
    before, after = list(range(-1, end - 1)), list(range(1, end + 1))  # places of the neighbors
    open_pairs: list[tuple[int, int]] = []  # new id, place of the left one; stale entries stay until popped

    def pair_at(left: int) -> int | None:
        right = after[left]
        return pairs.get((parts[left], parts[right])) if right < end else None

    open_pairs = [(new, left) for left in range(end) if (new := pair_at(left)) is not None]
    heapify(open_pairs)
    gone = [False] * end
    while open_pairs:
        new, left = heappop(open_pairs)
        if gone[left] or pair_at(left) != new:
            continue
        right = after[left]
        parts[left], gone[right], after[left] = new, True, after[right]
        if after[left] < end:
            before[after[left]] = left
        for index in (before[left], left):
            if index >= 0 and (longer := pair_at(index)) is not None:
                heappush(open_pairs, (longer, index))
    return [part for part, removed in zip(parts, gone, strict=True) if not removed]


def pairs_of_ranks(ranks: Mapping[bytes, int]) -> dict[tuple[int, int], int]:
    """Derive the pairs of a table in tiktoken's form: token bytes → rank, which is also the id.

    A token replaces any two tokens that its bytes can be cut into. Takes the sum of squared lengths.
    """
    return {
        (ranks[token[:cut]], ranks[token[cut:]]): rank
        for token, rank in ranks.items()
        for cut in range(1, len(token))
        if token[:cut] in ranks and token[cut:] in ranks
    }


@cache
def splitter(pattern: str) -> Callable[[str], list[str]]:
    """Compile `pattern` into a function that cuts text into its matches.

    pattern: one of ours, never from a file: matching may take exponential time. It may use Unicode classes
    such as \\p{L}, which `re` lacks.
    """
    import regex

    return regex.compile(pattern).findall
