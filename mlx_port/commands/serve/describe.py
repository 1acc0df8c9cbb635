"""Facts about a served model for programs that build a form: voices, and options with their ranges."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import Field, fields
from typing import Any

from tts_core import models
from tts_core.models import Configs, Documents
from tts_core.options import info, options_class
from tts_core.text.rules import read_rules


def describe(name: str, configs: Configs | None = None, documents: Documents | None = None) -> dict[str, Any]:
    """Describe a model. name: of its spec.  configs, documents: of its parts, for values that its files set.

    letters: that it has learned, None for any.
    speakers: that a text may tag, as [S1].
    needs_voice: it speaks only with a recording.
    recordings: of a voice at most, None for any number.
    transcript: of a recording, "needed", "optional" or "unused".
    voices: built in.
    languages: that it speaks, by ISO 639-1.
    """
    spec = models.model(name).of(configs or {})
    config = (configs or {}).get(name)
    own = None if config is None else spec.defaults(config, (documents or {}).get(name, {}))
    return {
        "title": spec.title,
        "letters": _letters((documents or {}).get(name, {})),
        "speakers": spec.speakers,
        "needs_voice": spec.needs_voice,
        "recordings": spec.references,
        "transcript": spec.transcript,
        "voices": list(spec.voices),
        "languages": list(spec.languages),
        "options": [
            _option(field, _own(field, own)) for field in fields(options_class(name)) if info(field).flags
        ],
    }


def _letters(documents: Mapping[str, str]) -> str | None:
    """The letters of a model's alphabet, small and capital; None if it has none."""
    alphabet = read_rules(documents).alphabet
    if alphabet is None:
        return None
    both = {*alphabet.lower(), *alphabet.upper()}
    return "".join(sorted(letter for letter in both if letter.isalpha() and letter in alphabet))


def _own(field: Field[Any], own: object) -> Any:
    """The value that a model sets by itself where an option's default is None; None if it has none.

    own: those values, as attributes.
    """
    if field.default is not None or own is None:
        return None
    value = getattr(own, field.name, None)
    return value if isinstance(value, int | float) else 0 if field.name == "top_k" else None


def _option(field: Field[Any], own: Any) -> dict[str, Any]:
    """Describe an option; bounds that it lacks are left out.

    default: None is the model's own value, also where a request gives null.
    own: that value, if it has one.
    above: an exclusive lower bound.
    unset: the value that means none.
    """
    known, kind = info(field), str(field.type)
    types = ("bool", "int", "float")
    found: dict[str, Any] = {
        "name": field.name,
        "type": next((each for each in types if kind.startswith(each)), "str"),
        "default": field.default,
        "own": own,
        "help": known.help,
    }
    bounds = {"min": known.low, "max": known.high, "above": known.above}
    found |= {name: bound for name, bound in bounds.items() if not math.isinf(bound)}
    if known.choices:
        found["choices"] = list(known.choices)
    if known.unset is not None:
        found["unset"] = known.unset
    return found
