"""`generate` and `stream` of both packages, typed for every model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypedDict, Unpack, overload

from tts_core.errors import UsageError
from tts_core.options import SharedOptions, chosen, options_class
from tts_core.pipeline import Generates, Progress, PromptLike, Streams
from tts_core.results import GenerationResult

Tell = Callable[[Progress], None]
P = ParamSpec("P")

if TYPE_CHECKING:
    from tts_core.dia.options import DiaChanges, DiaOptions
    from tts_core.dia2.options import Dia2Changes, Dia2Options
    from tts_core.mars5.options import Mars5Changes, Mars5Options
    from tts_core.metavoice.options import MetaVoiceChanges, MetaVoiceOptions
    from tts_core.qwen3.options import Qwen3Changes, Qwen3Options
    from tts_core.speaking.pipeline import Pipeline

    class SharedArguments(TypedDict, total=False):
        """Arguments of every model besides its options."""

        prompt: PromptLike
        progress: Tell | None
        cancel: threading.Event | None

    class SharedBatchArguments(TypedDict, total=False):
        """Arguments of every model's `generate_batch` besides its options."""

        prompts: PromptLike | Sequence[PromptLike]
        progress: Tell | None
        cancel: threading.Event | None

    class DiaArguments(SharedArguments, DiaChanges, total=False):
        """Dia's arguments."""

        options: DiaOptions | None

    class DiaBatchArguments(SharedBatchArguments, DiaChanges, total=False):
        """Arguments of Dia's `generate_batch`."""

        options: DiaOptions | None

    class Dia2Arguments(SharedArguments, Dia2Changes, total=False):
        """Dia2's arguments."""

        options: Dia2Options | None

    class Dia2BatchArguments(SharedBatchArguments, Dia2Changes, total=False):
        """Arguments of Dia2's `generate_batch`."""

        options: Dia2Options | None

    class Mars5Arguments(SharedArguments, Mars5Changes, total=False):
        """MARS5's arguments."""

        options: Mars5Options | None

    class Mars5BatchArguments(SharedBatchArguments, Mars5Changes, total=False):
        """Arguments of MARS5's `generate_batch`."""

        options: Mars5Options | None

    class MetaVoiceArguments(SharedArguments, MetaVoiceChanges, total=False):
        """MetaVoice's arguments."""

        options: MetaVoiceOptions | None

    class MetaVoiceBatchArguments(SharedBatchArguments, MetaVoiceChanges, total=False):
        """Arguments of MetaVoice's `generate_batch`."""

        options: MetaVoiceOptions | None
        batch_size: int

    class Qwen3Arguments(SharedArguments, Qwen3Changes, total=False):
        """Qwen3-TTS's arguments."""

        options: Qwen3Options | None

    class Qwen3BatchArguments(SharedBatchArguments, Qwen3Changes, total=False):
        """Arguments of Qwen3-TTS's `generate_batch`."""

        options: Qwen3Options | None


class Doors:
    """Both calls of a package.

    open_parts: opens the files of a path, without reading tensors, and knows their `model`.
    assemble: builds the pipeline of what is opened.
    embedded_voice: loads the Dia that is included.
    """

    def __init__(
        self,
        open_parts: Callable[[str | Path], Any],
        assemble: Callable[[Any], Pipeline],
        embedded_voice: Callable[[], Pipeline],
    ):
        self._open_parts, self._assemble, self._embedded_voice = open_parts, assemble, embedded_voice

    @overload
    def generate(
        self, text: str, model: Generates[P], *args: P.args, **kwargs: P.kwargs
    ) -> GenerationResult: ...
    @overload
    def generate(
        self, text: str, model: str | Path | None = None, **given: Unpack[DiaArguments]
    ) -> GenerationResult: ...
    @overload
    def generate(self, text: str, model: str | Path, **given: Unpack[Dia2Arguments]) -> GenerationResult: ...
    @overload
    def generate(self, text: str, model: str | Path, **given: Unpack[Mars5Arguments]) -> GenerationResult: ...
    @overload
    def generate(
        self, text: str, model: str | Path, **given: Unpack[MetaVoiceArguments]
    ) -> GenerationResult: ...
    @overload
    def generate(self, text: str, model: str | Path, **given: Unpack[Qwen3Arguments]) -> GenerationResult: ...
    def generate(
        self,
        text: str,
        model: Any = None,
        *,
        prompt: PromptLike = None,
        options: Any = None,
        progress: Tell | None = None,
        cancel: threading.Event | None = None,
        **changes: Any,
    ) -> GenerationResult:
        """Speak a text.

        model: a loaded model, which types the other arguments, what `load` takes as its path, or None for the
        embedded voice, a Dia.
        prompt: reference speech.
        options: the model's options: DiaOptions, Dia2Options, Mars5Options, MetaVoiceOptions, Qwen3Options;
        `changes` replace some of their fields, as seed=1.
        progress, cancel: see tts_core.pipeline.
        Raises UsageError for an option that the model does not have, and the errors of the model's
        `generate`.
        """
        return self._pipeline(model, options, changes).generate(
            text, prompt=prompt, options=options, progress=progress, cancel=cancel, **changes
        )

    @overload
    def stream(
        self, text: str | Iterable[str], model: Streams[P], *args: P.args, **kwargs: P.kwargs
    ) -> Iterator[GenerationResult]: ...
    @overload
    def stream(
        self, text: str | Iterable[str], model: str | Path | None = None, **given: Unpack[DiaArguments]
    ) -> Iterator[GenerationResult]: ...
    @overload
    def stream(
        self, text: str | Iterable[str], model: str | Path, **given: Unpack[Dia2Arguments]
    ) -> Iterator[GenerationResult]: ...
    @overload
    def stream(
        self, text: str | Iterable[str], model: str | Path, **given: Unpack[Mars5Arguments]
    ) -> Iterator[GenerationResult]: ...
    @overload
    def stream(
        self, text: str | Iterable[str], model: str | Path, **given: Unpack[MetaVoiceArguments]
    ) -> Iterator[GenerationResult]: ...
    @overload
    def stream(
        self, text: str | Iterable[str], model: str | Path, **given: Unpack[Qwen3Arguments]
    ) -> Iterator[GenerationResult]: ...
    def stream(
        self,
        text: str | Iterable[str],
        model: Any = None,
        *,
        prompt: PromptLike = None,
        options: Any = None,
        progress: Tell | None = None,
        cancel: threading.Event | None = None,
        **changes: Any,
    ) -> Iterator[GenerationResult]:
        """Speak a text part by part.

        text: or an iterable of its pieces, cut anywhere, as a language model writes them: each sentence is
        spoken as soon as it is complete; a model that reads while it speaks (Dia2, Qwen3-TTS) does not wait
        for sentences.
        Other arguments and errors as in `generate`; errors of the pieces are raised as they come.
        """
        return self._pipeline(model, options, changes).stream(
            text, prompt=prompt, options=options, progress=progress, cancel=cancel, **changes
        )

    def _pipeline(
        self, model: Pipeline | str | Path | None, options: Any, changes: Mapping[str, Any]
    ) -> Pipeline:
        """Load the model, after the checks that need no weights. Raises UsageError."""
        if model is None:
            chosen(options_class("dia"), options, changes)
            return self._embedded_voice()
        if isinstance(model, str | Path):
            chosen(SharedOptions, options, {})
            parts = self._open_parts(model)
            chosen(options_class(parts.model), options, changes)
            return self._assemble(parts)
        if isinstance(model, type) or not (hasattr(model, "generate") and hasattr(model, "stream")):
            raise UsageError(f"model: {model!r:.40} is neither a path nor a loaded model; see load()")
        return model
