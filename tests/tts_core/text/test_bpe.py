"""Merging, compared with its plainest form, and tables of ranks."""

import random
from collections.abc import Mapping
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tts_core.text.bpe import merge, pairs_of_ranks, splitter


def plain(ids: list[int], pairs: Mapping[tuple[int, int], int]) -> list[int]:
    """Round by round: all occurrences of the best pair, from left to right."""
    ids = list(ids)
    while known := [pair for pair in pairwise(ids) if pair in pairs]:
        best = min(known, key=lambda pair: pairs[pair])
        merged, place = [], 0
        while place < len(ids):
            hit = tuple(ids[place : place + 2]) == best
            merged.append(pairs[best] if hit else ids[place])
            place += 2 if hit else 1
        ids = merged
    return ids


def plain_ranks(data: bytes, ranks: Mapping[bytes, int]) -> list[int]:
    """One pair at a time, by its bytes: the lowest rank, of equals the leftmost."""
    parts = [data[i : i + 1] for i in range(len(data))]
    while len(parts) > 1:
        options = [(ranks[a + b], i) for i, (a, b) in enumerate(pairwise(parts)) if a + b in ranks]
        if not options:
            break
        place = min(options)[1]
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
    return [ranks[part] for part in parts]


@st.composite
def tables(draw: st.DrawFn) -> dict[tuple[int, int], int]:
    """Trained tables: each merge uses ids that already exist."""
    pairs: dict[tuple[int, int], int] = {}
    for new in range(4, 4 + draw(st.integers(0, 12))):
        pairs.setdefault((draw(st.integers(0, new - 1)), draw(st.integers(0, new - 1))), new)
    return pairs


@given(st.lists(st.integers(0, 3), max_size=60), tables())
def test_merge_is_the_round_by_round_form(ids, pairs):
    assert merge(ids, pairs) == plain(ids, pairs)


@given(
    st.text("ab", max_size=40).map(str.encode),
    st.sets(st.text("ab", min_size=2, max_size=5).map(str.encode), max_size=20),
    st.randoms(use_true_random=False),
)
def test_ranks_in_any_order(data, longer, chance):
    """Tiktoken's form, in which a longer token may come before its parts."""
    tokens = [*sorted(longer), b"a", b"b"]
    chance.shuffle(tokens)
    ranks = {token: rank for rank, token in enumerate(tokens)}
    ids = [ranks[data[i : i + 1]] for i in range(len(data))]
    assert merge(ids, pairs_of_ranks(ranks)) == plain_ranks(data, ranks)


class Counting(dict):
    """Table that counts lookups of pairs."""

    asked = 0

    def get(self, pair, default=None):
        self.asked += 1
        return super().get(pair, default)


def test_work_grows_with_the_input():
    """Twice the ids, at most 2.5 times the lookups in the table."""
    chance = random.Random(1)
    pairs = {(a, b): 32 + 32 * a + b for a in range(32) for b in range(32)}
    pairs |= {(new, other): 2000 + 40 * new + other for new in range(32, 300) for other in range(32)}
    ids = [chance.randrange(32) for _ in range(16_000)]
    for several in (ids, [1] * 16_000):
        half, whole = Counting(pairs), Counting(pairs)
        merge(several[:8000], half)
        merged = merge(several, whole)
        assert 8000 <= whole.asked <= 2.5 * half.asked
        assert merge(merged, pairs) == merged


def test_splitter():
    pieces = splitter(r"\p{L}++|\p{N}{1,3}|\s+(?!\S)")("héllo 12345  ")
    assert pieces == ["héllo", "123", "45", "  "]
