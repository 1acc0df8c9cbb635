"""Mistyped names and the hints that follow them."""

from pathlib import Path

import pytest

from tts_core.errors import UsageError, check_names, did_you_mean

KNOWN = ["seed", "top_k"]


def test_known_names_pass() -> None:
    check_names(["seed", "top_k"], KNOWN)


@pytest.mark.parametrize(
    ("name", "hint"), [("sead", "did you mean seed"), ("xyz", "it takes seed, top_k"), ("text", "it takes")]
)
def test_unknown_names_are_refused(name: str, hint: str) -> None:
    with pytest.raises(UsageError, match=rf"{name}: .* no such argument; {hint}"):
        check_names(["seed", name], KNOWN)


def test_one_hint_for_a_mistyped_name() -> None:
    assert did_you_mean("sead", ["top_k", "seed"]) == "did you mean seed?"
    assert (
        did_you_mean("voicse", ["voices", "models"], Path("some")) == f"did you mean {Path('some/voices')}?"
    )
    assert did_you_mean("xyz", ["top_k", "seed"]) is None
