"""MARS5's pipeline: a text and a voice in, codes and speech out.

Upstream: Camb-ai/MARS5-TTS@84697c8 (AGPL-3.0); written from a description, none of its code was used.
Differs from upstream: `timesteps` sets the number of diffusion steps; a shallow clone needs no transcript;
by default numbers and abbreviations are spelled out and long texts cut into pieces; a reference that is too
long is rejected; a text without any frame gives empty audio instead of a crash.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Unpack

from tts_core.mars5.model import MODEL
from tts_core.mars5.net import Mars5Net
from tts_core.mars5.reference import Sizes
from tts_core.results import GenerationResult
from tts_core.speaking.pipeline import Pipeline

if TYPE_CHECKING:
    import numpy as np

    from tts_core.doors import Mars5Arguments, Mars5BatchArguments
    from tts_core.mars5.options import Mars5Changes, Mars5Options
    from tts_core.pipeline import PromptLike


class Mars5Pipeline(Pipeline):
    """A MARS5 of either side.

    prompt: the voice, or its (Q, P) codes. With a transcript the clone is deep (the networks read the
    reference's words and continue it) unless deep_clone is False; whether its reference leaves room for the
    text is checked after the codec has encoded it. noise may be one source per piece.
    codes in the results: all frames, also those whose audio was trimmed.
    """

    model = MODEL
    engine: Mars5Net

    @property
    def sizes(self) -> Sizes:
        """The sizes of the networks that requests ask."""
        return self.engine.facts.sizes

    if TYPE_CHECKING:

        def generate(self, text: str, **given: Unpack[Mars5Arguments]) -> GenerationResult: ...
        def stream(
            self, text: str | Iterable[str], **given: Unpack[Mars5Arguments]
        ) -> Iterator[GenerationResult]: ...
        def generate_batch(
            self, texts: Sequence[str], **given: Unpack[Mars5BatchArguments]
        ) -> list[GenerationResult]: ...
        def generate_codes(
            self,
            texts: Sequence[str],
            prompts: PromptLike | Sequence[PromptLike] = None,
            *,
            options: Mars5Options | None = None,
            **changes: Unpack[Mars5Changes],
        ) -> list[np.ndarray]: ...
