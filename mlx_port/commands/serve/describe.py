"""Facts about a served model for programs that build a form: voices, and options with their ranges."""

from __future__ import annotations

import math
from dataclasses import Field, fields
from typing import Any

from tts_core import models
from tts_core.options import info, options_class


def describe(name: str) -> dict[str, Any]:
    """Describe a model. name: of its spec.

    speakers: that a text may tag, as [S1].  needs_voice: it speaks only with a recording.  recordings: of
    a voice at most, None for any number.  transcript: of a recording, "needed", "optional" or "unused".
    """
    spec = models.model(name)
    return {
        "title": spec.title,
        "speakers": spec.speakers,
        "needs_voice": spec.needs_voice,
        "recordings": spec.references,
        "transcript": spec.transcript,
        "options": [_option(field) for field in fields(options_class(name)) if info(field).flags],
    }


def _option(field: Field[Any]) -> dict[str, Any]:
    """Describe an option; bounds that it lacks are left out.

    default: None is the model's own value, also where a request gives null.  above: an exclusive lower bound.
    unset: the value that means none.
    """
    known, kind = info(field), str(field.type)
    types = ("bool", "int", "float")
    found: dict[str, Any] = {
        "name": field.name,
        "type": next((each for each in types if kind.startswith(each)), "str"),
        "default": field.default,
        "help": known.help,
    }
    bounds = {"min": known.low, "max": known.high, "above": known.above}
    found |= {name: bound for name, bound in bounds.items() if not math.isinf(bound)}
    if known.choices:
        found["choices"] = list(known.choices)
    if known.unset is not None:
        found["unset"] = known.unset
    return found
