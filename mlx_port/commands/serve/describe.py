"""Facts about a served model for programs that build a form: voices, and options with their ranges."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import Field, fields
from typing import Any

from tts_core import models
from tts_core.models import Configs, Documents
from tts_core.options import info, options_class, types
from tts_core.text.accents import plain
from tts_core.text.alphabet import is_invisible
from tts_core.text.rules import TextRules, read_rules

# Unicode's blocks with Latin letters, signs and punctuation, besides a model's own characters
ASKED = (range(0x21, 0x300), range(0x1E00, 0x1F00), range(0x2000, 0x2300), range(0xFB00, 0xFB07))
SEED = (
    "The same seed gives the same speech. By default a name without a recording always has the same one, "
    "and a recording or a built-in voice a random one."
)


def describe(
    name: str,
    configs: Configs | None = None,
    documents: Documents | None = None,
    *,
    longest: float = math.inf,
) -> dict[str, Any]:
    """Describe a model.

    name: of its spec.
    configs, documents: of its parts, for values that its files set.
    longest: seconds of a speech that the server gives.
    Its keys:

    letters: characters that it reads as they are, as plain letters or as words, None for any.
    speakers: that a text may tag, as [S1].
    needs_voice: it speaks only with a recording.
    recordings: of a voice at most, None for any number.
    transcript: of a recording, "needed", "optional" or "unused".
    voices: built in.
    own_speakers: of [S1], [S2], if it speaks in no other voice.
    languages: that it speaks, by ISO 639-1.
    """
    spec = models.model(name).of(configs or {})
    config = (configs or {}).get(name)
    own = None if config is None else spec.defaults(config, (documents or {}).get(name, {}))
    kind = options_class(name)
    return {
        "title": spec.title,
        "letters": _letters((documents or {}).get(name, {})),
        "speakers": spec.speakers,
        "needs_voice": spec.needs_voice,
        "recordings": spec.references,
        "transcript": spec.transcript,
        "voices": list(spec.voices),
        "own_speakers": list(spec.own_speakers),
        "languages": list(spec.languages),
        "options": [
            _served(_option(field, types(kind)[field.name][0], _own(field, own)), longest)
            for field in fields(kind)
            if info(field).flags
        ],
    }


def _letters(documents: Mapping[str, str]) -> str | None:
    """The characters that a model's rules read, spaces left out; None if it has no alphabet."""
    rules = read_rules(documents)
    if rules.alphabet is None:
        return None
    asked = {*rules.alphabet, *rules.replacements, *(chr(code) for blocks in ASKED for code in blocks)}
    return "".join(sorted(char for char in asked if not char.isspace() and _is_read(char, rules)))


def _is_read(char: str, rules: TextRules) -> bool:
    if rules.knows(char) or is_invisible(char):
        return True
    letters = plain(char)
    return letters is not None and all(map(rules.knows, letters))


def _own(field: Field[Any], own: object) -> Any:
    """The value that a model sets by itself where an option's default is None; None if it has none.

    own: those values, as attributes.
    """
    if field.default is not None or own is None:
        return None
    value = getattr(own, field.name, None)
    return value if isinstance(value, int | float) else 0 if field.name == "top_k" else None


def _served(option: dict[str, Any], longest: float) -> dict[str, Any]:
    """Put what the server does without a value in place of what the model does."""
    if option["name"] == "seed":
        return {**option, "help": SEED}
    if option["name"] == "max_seconds" and longest < option["max"]:
        return {**option, "max": longest, "own": longest}
    return option


def _option(field: Field[Any], kind: Any, own: Any) -> dict[str, Any]:
    """Describe an option; bounds that it lacks are left out.

    kind: type of its values.
    default: None is the model's own value, also where a request gives null.
    own: that value, if it has one.
    above: an exclusive lower bound.
    unset: the value that means none.
    """
    known = info(field)
    found: dict[str, Any] = {
        "name": field.name,
        "type": kind.__name__ if kind in (bool, int, float) else "str",
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
