"""Names of arguments that a function does not take."""

import pytest

from tts_core.arguments import check_arguments
from tts_core.errors import UsageError


def speak(text: str, *, seed: int | None = None, top_k: int = 0) -> None: ...


def open_ended(text: str, **fields: int) -> None: ...


def test_known_names_pass() -> None:
    check_arguments(speak, ["seed", "top_k"])
    check_arguments(open_ended, ["anything"])


@pytest.mark.parametrize(
    ("name", "hint"), [("sead", "did you mean seed"), ("xyz", "it takes seed, top_k"), ("text", "it takes")]
)
def test_unknown_names_are_refused(name: str, hint: str) -> None:
    with pytest.raises(UsageError, match=rf"{name}: .* no such argument; {hint}"):
        check_arguments(speak, ["seed", name])
