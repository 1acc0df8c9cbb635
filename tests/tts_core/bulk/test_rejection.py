"""Conditions, ranks of attempts, and seeds."""

import pytest

from tts_core.bulk.rejection import Condition, Rejection, attempt_seed
from tts_core.errors import UsageError

KNOWN = ("wer", "mos", "likeness")


@pytest.mark.parametrize(
    ("text", "written", "bad", "good"),
    [
        ("wer>0.3", "wer>0.3", 0.31, 0.3),
        (" mos < 3. ", "mos<3", 2.9, 3.0),
        ("likeness<-.5", "likeness<-0.5", -0.6, 0.0),
    ],
)
def test_conditions(text: str, written: str, bad: float, good: float) -> None:
    condition = Condition.parse(text, KNOWN)
    assert str(condition) == written
    assert condition.holds({condition.figure: bad})
    assert not condition.holds({condition.figure: good})
    assert not condition.holds({})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("wer=0.3", "'wer=0.3' is no condition"),
        ("wer>", "is no condition"),
        ("wer>nan", "is no condition"),
        ("wer>1e9", "is no condition"),
        ("wre>0.3", "'wre'; did you mean wer"),
        ("tempo>1", "'tempo'; choose one of wer, mos, likeness"),
    ],
)
def test_bad_conditions(text: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        Condition.parse(text, KNOWN)


def test_fewest_conditions_first_then_the_figures_in_their_order() -> None:
    conditions = tuple(Condition.parse(text, KNOWN) for text in ("wer>0.3", "mos<3"))
    rejection = Rejection(conditions, 2, {"wer": "ears", "mos": "taste"})
    found = {
        "good": {"wer": 0.2, "mos": 3.1},
        "good, fewer errors": {"wer": 0.1, "mos": 3.0},
        "one, fewer errors": {"wer": 0.0, "mos": 2.0},
        "one, fewer errors, better": {"wer": 0.0, "mos": 2.5},
        "both": {"wer": 0.4, "mos": 2.9},
    }
    assert sorted([*found], key=lambda name: rejection.rank(found[name])) == [
        "good, fewer errors",
        "good",
        "one, fewer errors, better",
        "one, fewer errors",
        "both",
    ]
    assert rejection.rank(None) > rejection.rank(found["both"])
    assert [rejection.rank(one)[0] for one in found.values()] == [0, 0, 1, 1, 2]


def test_seeds_follow_from_key_and_attempt() -> None:
    seeds = {attempt_seed(key, attempt) for key in ("a", "b", "a 1") for attempt in (1, 2, 11)}
    assert len(seeds) == 9
    assert all(0 <= seed < 2**60 for seed in seeds)
    assert attempt_seed("a", 1) == attempt_seed("a", 1)
