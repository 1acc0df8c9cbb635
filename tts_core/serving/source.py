"""A model that can be loaded: its texts are checked, and its options known, without its weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tts_core import models
from tts_core.models import Configs, Documents, Model
from tts_core.options import changed
from tts_core.pipeline import Pipeline, PromptLike


@dataclass(frozen=True, eq=False)
class ModelSource:
    """A model's files, opened.

    model: name of its spec.
    configs, documents: of its parts by kind, as `open_parts` gives them.
    load: builds the pipeline. It is called by the thread that speaks, and again after an unload.
    codec_precision: of codecs' decoders.
    """

    model: str
    configs: Configs
    documents: Documents
    load: Callable[[], Pipeline]
    codec_precision: str = "float32"

    def request(self, text: str, options: Mapping[str, Any], prompt: PromptLike, **how: bool) -> Any:
        """Check a text with its options and prompt; returns a request for the pipeline.

        options: changes of the model's defaults.  how: of the model's `ask`. Raises UsageError.
        """
        model = models.MODELS[self.model]
        chosen = changed(model.options(), options)
        return model.code().ask(self.configs, self.documents, text, chosen, prompt, **how)

    def live(self, text: str, options: Mapping[str, Any], prompt: PromptLike) -> Any:
        """Check the first piece of a text that arrives in pieces. Raises UsageError.

        A model that is `fed` reads on by itself; any other speaks piece by piece, in the same voices.
        """
        return self.request(text, options, prompt, more=True)

    @property
    def spec(self) -> Model:
        """The facts about this checkpoint."""
        return models.MODELS[self.model].of(self.configs)

    @property
    def fed(self) -> bool:
        """True if the model takes text while it speaks."""
        return models.MODELS[self.model].fed
