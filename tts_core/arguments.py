"""Arguments that a function does not take, told in one line with the name that was probably meant."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable

from tts_core.errors import UsageError


def check_arguments(function: Callable[..., object], given: Iterable[str]) -> None:
    """Raise UsageError for the first name that is no keyword argument of `function`; one that takes any
    keyword argument checks by itself.
    """
    parameters = inspect.signature(function).parameters.values()
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        return
    check_names(given, [one.name for one in parameters if one.kind is one.KEYWORD_ONLY])


def check_names(given: Iterable[str], known: Iterable[str]) -> None:
    """Raise UsageError for the first name that is not known, with the nearest one that is."""
    known = list(known)
    strange = next((name for name in given if name not in known), None)
    if strange is not None:
        close = difflib.get_close_matches(strange, known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"it takes {', '.join(sorted(known))}"
        raise UsageError(f"{strange}: the model's generate takes no such argument; {hint}")
