"""The description of a server in the Wyoming protocol: its voices, by model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields
from importlib.metadata import version

from wyoming.info import Attribution, Info, TtsProgram, TtsVoice

from mlx_port.commands.serve.names import LANGUAGES, VOICES
from mlx_port.commands.serve.service import Service
from tts_core.options import options_class

OURS = Attribution(name="mlx-port", url="https://pypi.org/project/mlx-port")


def describe(service: Service) -> Info:
    """Describe the voices: those built in; else the configured ones where recordings are taken, and OpenAI's
    names where none is needed. A model that needs an instruction has none, as no client can give one.
    """
    program = TtsProgram(
        name="mlx-port",
        description="Speech models in MLX and PyTorch",
        attribution=OURS,
        installed=True,
        version=version("mlx-port"),
        voices=[
            _voice(model, name, service.engine.models[model].spec.languages, is_first=index == 0)
            for index, model in enumerate(service.names)
            for name in _names(service, model)
        ],
        supports_synthesize_streaming=True,
    )
    return Info(tts=[program])


def fields_of(name: str | None) -> dict[str, str]:
    """Turn the name of a voice into fields of a speech; an empty one, or None, is the default voice."""
    if not name:
        return {}
    model, slash, voice = name.partition("/")
    return {"model": model, "voice": voice} if slash else {"voice": name}


def language_of(service: Service, code: str | None) -> dict[str, str]:
    """Turn a client's language, such as de or de_DE, into a field of a speech by the first model.

    Empty where that model has no such option, or does not speak it.
    """
    spec = service.engine.models[service.names[0]].spec
    short = re.split("[-_]", (code or "").lower())[0]
    has_option = any(field.name == "language" for field in fields(options_class(spec.name)))
    return {"language": LANGUAGES[short]} if has_option and short in spec.languages else {}


def _names(service: Service, model: str) -> list[str]:
    known, spec = service.voices.names(), service.engine.models[model].spec
    if spec.needs_instruction:
        return []
    own = spec.voices or (() if spec.needs_voice else VOICES)
    stored = [] if spec.voices or spec.references == 0 else known
    return [*stored, *(name for name in own if spec.voices or name not in known)]


def _voice(model: str, name: str, languages: Sequence[str], *, is_first: bool) -> TtsVoice:
    return TtsVoice(
        name=name if is_first else f"{model}/{name}",
        description=f"{name} ({model})",
        attribution=OURS,
        installed=True,
        version=None,
        languages=list(languages),
    )
