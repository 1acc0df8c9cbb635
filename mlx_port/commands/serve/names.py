"""Names of models and voices that clients send: served ones, and OpenAI's, which map to them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Sequence

from mlx_port.commands.serve.errors import ApiError, invalid
from tts_core.errors import did_you_mean

MODELS = ("tts-1", "tts-1-hd", "gpt-4o-mini-tts")  # of OpenAI: the first model served
_OPENAI = re.compile(r"(tts-\d+(-hd)?|gpt-[\w.-]+-tts)(-\d{4}(-\d\d-\d\d)?)?")  # also dated, or later
VOICES = (
    "alloy",
    "ash",
    "ballad",
    "coral",
    "echo",
    "fable",
    "onyx",
    "nova",
    "sage",
    "shimmer",
    "verse",
    "marin",
    "cedar",
)
LANGUAGES = {  # ISO 639-1 → as models with the option `language` name it
    "zh": "chinese",
    "en": "english",
    "ja": "japanese",
    "ko": "korean",
    "de": "german",
    "fr": "french",
    "ru": "russian",
    "pt": "portuguese",
    "es": "spanish",
    "it": "italian",
}
DEFAULT_VOICE = VOICES[0]
ADD_A_VOICE = "add one with POST /v1/audio/voices or: mlx-port voices add NAME FILE"


def choose_model(name: str | None, served: Sequence[str]) -> str:
    """Return the served model of a name; None is the first. Raises ApiError 404 with the nearest name."""
    if name is None or (name not in served and _OPENAI.fullmatch(name)):
        return served[0]
    if name not in served:
        hint = did_you_mean(name[:100], [*served, *MODELS]) or f"there is {', '.join(served)}"
        message = f"model: {name!r:.100} is not served here; {hint}"
        raise ApiError(404, message, param="model", code="model_not_found")
    return name


def check_voice(name: str, stored: Collection[str], own: Collection[str]) -> None:
    """Raise ApiError 400, with the nearest name, unless a voice is stored, the model's own or OpenAI's.

    Case counts, but in the names of the model's own voices.
    """
    if name not in stored and name.lower() not in own and name not in VOICES:
        known = list(dict.fromkeys([*stored, *own, *VOICES]))
        hint = did_you_mean(name, known) or f"there is {', '.join(known)}"
        raise invalid("voice", f"voice: {name!r} is not there; {hint}", "voice_not_found")


def recording_for(name: str, known: Sequence[str], *, needed: bool) -> str | None:
    """Return the configured voice that speaks for a name, None for no recording.

    needed: the model speaks only with a recording; OpenAI's names are then spread over the configured voices.
    Raises ApiError 400 that says how to add one if there is none.
    """
    if name in known:
        return name
    if not needed:
        return None
    if not known:
        raise invalid("voice", f"voice: this model speaks with a recording and there is none; {ADD_A_VOICE}")
    return known[VOICES.index(name) % len(known)]


def speaker_for(name: str, voices: Sequence[str]) -> str:
    """Return the built-in voice of a name: one of OpenAI's is spread over them, any other is itself."""
    return voices[VOICES.index(name) % len(voices)] if voices and name in VOICES else name


def seed_of(name: str) -> int:
    """Derive the seed of a voice without a recording from its name, so that the voice is steady."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
