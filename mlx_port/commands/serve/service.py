"""From the fields of a request to a queued speech: model, voice, options. Works in any thread."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from mlx_port.commands.serve.choose import has_seed, model_options, reference, warning
from mlx_port.commands.serve.errors import ApiError, invalid
from mlx_port.commands.serve.fields import Bodies, SpeechBody, bodies
from mlx_port.commands.serve.metrics import Metrics
from mlx_port.commands.serve.names import check_voice, choose_model, recording_for, seed_of, speaker_for
from mlx_port.commands.serve.settings import Settings
from tts_core.errors import CheckpointError, UsageError
from tts_core.models import Model
from tts_core.prompt import Prompt
from tts_core.serving.engine import SpeechEngine
from tts_core.serving.speech import Speech
from tts_core.serving.voices import VoiceStore, built_in, fitted
from tts_core.text.alphabet import known_text

_LOG = logging.getLogger("mlx_port.serve")


@dataclass(frozen=True, eq=False)
class Order:
    """A speech as the engine takes it.

    model: its name there.
    is_own: the prompt came with the request.
    reads: returns a text, or a fragment of one, without what the server leaves out.
    warnings: of fields that are ignored.
    """

    model: str
    text: str
    options: Mapping[str, Any]
    prompt: Prompt | None
    is_own: bool
    reads: Callable[[str], str] = str
    warnings: tuple[str, ...] = ()


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

    @property
    def bodies(self) -> Bodies:
        """Types of the bodies, with the limits of this server."""
        limits = self.settings.limits
        return bodies(limits, min(limits.batch, self.engine.max_queue))

    @property
    def _ignored(self) -> list[ApiError] | None:
        return None if self.settings.strict else []

    def check(self, body: SpeechBody) -> None:
        """Check all that is known without reading the voice. Raises ApiError naming the field."""
        name = choose_model(body.model, self.names)
        check_voice(body.voice, self.voices.names(), self.engine.models[name].spec.voices)
        model_options(body, self.engine.models[name].spec, self.settings.limits, self._ignored)

    def order(self, body: SpeechBody) -> Order:
        """Choose model, voice and options of a speech. Raises ApiError naming the field.

        A voice is steady: a configured one is its recording, a built-in one itself; for others the name gives
        the seed unless the request does.
        """
        name = choose_model(body.model, self.names)
        spec = self.engine.models[name].spec
        known = self.voices.names()
        check_voice(body.voice, known, spec.voices)
        ignored, limits = self._ignored, self.settings.limits
        options = model_options(body, spec, limits, ignored)
        prompt = reference(body, spec, limits)
        own = built_in(speaker_for(body.voice, spec.voices), spec, known) if prompt is None else None
        if own:
            options["voice"] = own
        elif prompt is None:
            recording = recording_for(body.voice, known, needed=spec.needs_voice)
            prompt = None if recording is None else fitting(self.voices, recording, spec)
        if prompt is None and not own and has_seed(spec.name):
            options.setdefault("seed", seed_of(body.voice))
        reads = self._reads(name, options)
        warnings = tuple(map(warning, ignored or ()))
        for line in warnings:
            _LOG.warning("a field is ignored: %s", line)
        is_own = body.prompt is not None
        return Order(name, reads(body.input), options, prompt, is_own=is_own, reads=reads, warnings=warnings)

    def _reads(self, name: str, options: Mapping[str, Any]) -> Callable[[str], str]:
        """Choose whether letters that a model has not learned are left out: if the client does not say."""
        source = self.engine.models[name]
        knows = source.spec.learned(source.documents)
        if knows is None or not self.settings.skip_unknown or {"skip_unknown", "as_written"} & options.keys():
            return str
        return partial(known_text, "text", known=knows, skip=True)

    def queue(
        self,
        order: Order,
        on_part: Callable[[Speech], None],
        *,
        more: bool = False,
        ahead: float | None = None,
    ) -> Speech:
        """Queue a speech. more, ahead: as in SpeechEngine.submit. Raises ApiError, and as it does.

        A text is refused if its speech is expected to be too long and it does not say where to end.
        """
        try:
            return self.engine.submit(
                order.model,
                order.text,
                options=order.options,
                prompt=order.prompt,
                more=more,
                ahead=ahead,
                longest=math.inf if "max_seconds" in order.options else self.settings.limits.audio_seconds,
                on_part=on_part,
            )
        except UsageError as error:
            if order.is_own and str(error).startswith("prompt: "):
                raise invalid("prompt", str(error)) from None
            raise


def fitting(store: VoiceStore, name: str, spec: Model) -> Prompt:
    """Read a configured voice for a model. Raises ApiError 400 for one that is damaged, or that the model
    cannot use.
    """
    try:
        return fitted(store.prompt(name), name, spec)
    except CheckpointError as error:  # its message has a path
        _LOG.warning("%s", error)
        message = f"voice: {name} is damaged; remove it and add it again"
        raise invalid("voice", message, "voice_damaged") from None
    except UsageError as error:
        raise invalid("voice", str(error)) from None
