"""From the fields of a request to a queued speech: model, voice, options. Works in any thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mlx_port.commands.serve.body import Asked, has_seed, model_options
from mlx_port.commands.serve.errors import invalid
from mlx_port.commands.serve.metrics import Metrics
from mlx_port.commands.serve.names import check_voice, choose_model, recording_for, seed_of
from mlx_port.commands.serve.settings import Settings
from tts_core import models
from tts_core.errors import UsageError
from tts_core.models import Model
from tts_core.prompt import Prompt
from tts_core.serving.engine import SpeechEngine
from tts_core.serving.speech import Speech
from tts_core.serving.voices import VoiceStore, fitted


@dataclass(frozen=True, eq=False)
class Service:
    """State that the routes share."""

    engine: SpeechEngine
    voices: VoiceStore
    settings: Settings
    metrics: Metrics

    @property
    def names(self) -> list[str]:
        """Names of the served models; the first is the default."""
        return list(self.engine.models)

    def check(self, asked: Asked) -> None:
        """Check all that is known without reading the voice. Raises ApiError naming the field."""
        name = choose_model(asked.model, self.names)
        check_voice(asked.voice, self.voices.names())
        model_options(asked, self.engine.models[name].model, self.settings.limits)

    def submit(self, asked: Asked, on_part: Callable[[Speech], None]) -> Speech:
        """Queue a speech. Raises ApiError, and as SpeechEngine.submit.

        A voice is steady: a configured one is its recording; without one, its name gives the seed unless the
        request does.
        """
        name = choose_model(asked.model, self.names)
        spec = models.model(self.engine.models[name].model)
        known = self.voices.names()
        check_voice(asked.voice, known)
        options = model_options(asked, spec.name, self.settings.limits)
        prompt = asked.prompt
        if prompt is None:
            recording = recording_for(asked.voice, known, needed=spec.needs_voice)
            prompt = None if recording is None else fitting(self.voices, recording, spec)
        if prompt is None and has_seed(spec.name):
            options.setdefault("seed", seed_of(asked.voice))
        try:
            return self.engine.submit(name, asked.text, options=options, prompt=prompt, on_part=on_part)
        except UsageError as error:
            if asked.prompt is not None and str(error).startswith("prompt: "):
                raise invalid("prompt", str(error)) from None
            raise


def fitting(store: VoiceStore, name: str, spec: Model) -> Prompt:
    """Read a configured voice for a model. Raises ApiError 400 for one that the model cannot use."""
    prompt = store.prompt(name)
    try:
        return fitted(prompt, name, spec)
    except UsageError as error:
        raise invalid("voice", str(error)) from None
