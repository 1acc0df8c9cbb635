"""Facts about a served model for programs that build a form: voices, and options with their ranges."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any

from tts_core import models
from tts_core.models import Configs, Documents
from tts_core.options import LONGEST_SECONDS, info, options_class, types
from tts_core.text.accents import plain
from tts_core.text.alphabet import is_invisible
from tts_core.text.rules import TextRules, read_rules

# Unicode's blocks with Latin letters, signs and punctuation, besides a model's own characters
BLOCKS = (range(0x21, 0x300), range(0x1E00, 0x1F00), range(0x2000, 0x2300), range(0xFB00, 0xFB07))
Schema = dict[str, Any]
TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}
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
    options: as `describe_options`.
    own: values that the model sets by itself where an option's default is null, by name.
    """
    spec = models.MODELS[name].of(configs or {})
    config = (configs or {}).get(name)
    own = None if config is None else spec.defaults(config, (documents or {}).get(name, {}))
    options = describe_options(name, longest)
    unset = [option for option, own_option in options.items() if "default" not in own_option]
    limit = {"max_seconds": longest} if longest < LONGEST_SECONDS else {}
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
        "options": options,
        "own": _own(unset, own) | limit,
    }


def describe_options(name: str, longest: float = math.inf) -> dict[str, Schema]:
    """Describe the options of a model as JSON Schema, by name.

    The first of `anyOf` is the plain value; null is the model's own. longest: as for `describe`.
    """
    kind, found = options_class(name), dict[str, Schema]()
    for field in fields(kind):
        known, high = info(field), info(field).high
        if not known.flags:
            continue
        word = TYPES.get(types(kind)[field.name][0], "string")
        plain: Schema = {"type": word}
        most = "maxLength" if word == "string" else "maximum"
        high = min(high, longest) if field.name == "max_seconds" else high
        bounds = {"minimum": known.low, most: high, "exclusiveMinimum": known.above}
        plain |= {bound: value for bound, value in bounds.items() if not math.isinf(value)}
        also: list[Schema] = [{"type": "string", "enum": [*known.choices]}] if known.choices else []
        if word == "string" and also:
            plain = also.pop()
        also += [] if known.unset is None else [{"const": known.unset}]
        found[field.name] = {
            "anyOf": [plain, {"type": "null"}, *also],
            "description": SEED if field.name == "seed" else known.help,
            **({} if field.default is None else {"default": field.default}),
        }
    return found


def _letters(documents: Mapping[str, str]) -> str | None:
    """The characters that a model's rules read, spaces left out; None if it has no alphabet."""
    rules = read_rules(documents)
    if rules.alphabet is None:
        return None
    characters = {*rules.alphabet, *rules.replacements, *(chr(code) for blocks in BLOCKS for code in blocks)}
    return "".join(sorted(char for char in characters if not char.isspace() and _is_read(char, rules)))


def _is_read(char: str, rules: TextRules) -> bool:
    if rules.knows(char) or is_invisible(char):
        return True
    letters = plain(char)
    return letters is not None and all(map(rules.knows, letters))


def _own(options: Collection[str], own: object) -> dict[str, Any]:
    """Collect the numbers that a model sets by itself. own: those values, as attributes."""
    values = {name: getattr(own, name, None) for name in options if own is not None}
    if "top_k" in values and values["top_k"] is None:
        values["top_k"] = 0
    return {name: value for name, value in values.items() if isinstance(value, int | float)}
