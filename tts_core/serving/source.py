"""A model that can be loaded: its texts are checked, and its options known, without its weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tts_core import models
from tts_core.models import Configs, Documents, Model
from tts_core.options import changed
from tts_core.pipeline import PromptLike

if TYPE_CHECKING:
    from tts_core.speaking.pipeline import Pipeline
    from tts_core.speaking.request import RequestFacts


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

    @cached_property
    def facts(self) -> RequestFacts:
        """The facts by which requests are checked."""
        return models.MODELS[self.model].code().facts(self.configs, self.documents)

    def request(self, text: str, options: Mapping[str, Any], prompt: PromptLike) -> Any:
        """Check a text with its options and prompt; returns a request for the pipeline.

        options: changes of the model's defaults. Raises UsageError.
        """
        return self.facts.request(text, changed(models.MODELS[self.model].options(), options), prompt)

    def live(self, text: str, options: Mapping[str, Any], prompt: PromptLike) -> Any:
        """Check the first piece of a text that arrives in pieces. Raises UsageError.

        A model that is `fed` reads on by itself; any other speaks piece by piece, in the same voices.
        """
        return self.facts.live(text, changed(models.MODELS[self.model].options(), options), prompt)

    @property
    def spec(self) -> Model:
        """The facts about this checkpoint."""
        return models.MODELS[self.model].of(self.configs)

    @property
    def fed(self) -> bool:
        """True if the model takes text while it speaks."""
        return models.MODELS[self.model].fed
