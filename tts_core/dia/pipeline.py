"""Dia's pipeline: text and prompts in, codes and speech out.

Source: nari-labs/dia model.py@876125e (0626) and @2811af1 (v0.1), Apache-2.0.
Differs from upstream: a text is independent of its neighbors in a batch; an EOS predicted inside a prompt is
ignored; a long text is spoken in pieces that have the same voices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Unpack

from tts_core.dia.model import MODEL
from tts_core.dia.net import DiaNet
from tts_core.results import GenerationResult
from tts_core.speaking.pipeline import Pipeline
from tts_core.text.rules import TextRules

if TYPE_CHECKING:
    import numpy as np

    from tts_core.dia.options import DiaChanges, DiaOptions
    from tts_core.doors import DiaArguments, DiaBatchArguments
    from tts_core.pipeline import PromptLike


class DiaPipeline(Pipeline):
    """A Dia of either side.

    prompt: a voice to continue, with its transcript. All pieces of a long text have the same voices: the
    prompt's, else those of the first pieces (tts_core.dia.pieces). noise may be one source per piece.
    """

    model = MODEL
    engine: DiaNet

    @property
    def rules(self) -> TextRules:
        """The rules for texts."""
        return self.engine.facts.rules

    if TYPE_CHECKING:

        def generate(self, text: str, **given: Unpack[DiaArguments]) -> GenerationResult: ...
        def stream(
            self, text: str | Iterable[str], **given: Unpack[DiaArguments]
        ) -> Iterator[GenerationResult]: ...
        def generate_batch(
            self, texts: Sequence[str], **given: Unpack[DiaBatchArguments]
        ) -> list[GenerationResult]: ...
        def generate_codes(
            self,
            texts: Sequence[str],
            prompts: PromptLike | Sequence[PromptLike] = None,
            *,
            options: DiaOptions | None = None,
            **changes: Unpack[DiaChanges],
        ) -> list[np.ndarray]: ...
