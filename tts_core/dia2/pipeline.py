"""Dia2's pipeline: text and recordings in, codes, speech and the times of words out.

Source: nari-labs/dia2@8687268, Apache-2.0.
Differs from upstream: text may come while speech goes out; a long text is spoken in pieces that have the same
voices; recordings come with their words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Unpack

from tts_core.dia2.model import MODEL
from tts_core.dia2.net import Dia2Net
from tts_core.results import GenerationResult
from tts_core.speaking.pipeline import Pipeline

if TYPE_CHECKING:
    import numpy as np

    from tts_core.dia2.options import Dia2Changes, Dia2Options
    from tts_core.doors import Dia2Arguments, Dia2BatchArguments
    from tts_core.pipeline import PromptLike


class Dia2Pipeline(Pipeline):
    """A Dia2 of either side.

    prompt: a recording of each speaker, with its words and their times. A long text is spoken in pieces with
    the same voices: the recordings', else those of the first piece.
    """

    model = MODEL
    engine: Dia2Net

    if TYPE_CHECKING:

        def generate(self, text: str, **given: Unpack[Dia2Arguments]) -> GenerationResult: ...
        def stream(
            self, text: str | Iterable[str], **given: Unpack[Dia2Arguments]
        ) -> Iterator[GenerationResult]: ...
        def generate_batch(
            self, texts: Sequence[str], **given: Unpack[Dia2BatchArguments]
        ) -> list[GenerationResult]: ...
        def generate_codes(
            self,
            texts: Sequence[str],
            prompts: PromptLike | Sequence[PromptLike] = None,
            *,
            options: Dia2Options | None = None,
            **changes: Unpack[Dia2Changes],
        ) -> list[np.ndarray]: ...
