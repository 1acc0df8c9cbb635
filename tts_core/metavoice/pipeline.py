"""MetaVoice's pipeline: a text and a voice in, codes and speech out.

Source: metavoiceio/metavoice-src, July 2024 (Apache-2.0).
Differs from upstream: seeds work; a long text is read in pieces, each with its own random numbers, and a
warning is logged if one is cut off; by default numbers and abbreviations are spelled out; codes of the second
stage are read by position; Vocos is the default decoder, multi-band diffusion an option; no denoising.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Unpack

from tts_core.metavoice.model import MODEL
from tts_core.metavoice.net import MetaVoiceNet
from tts_core.nn.calls import exclusive
from tts_core.results import GenerationResult
from tts_core.speaking.pipeline import Pipeline

if TYPE_CHECKING:
    import numpy as np

    from tts_core.doors import MetaVoiceArguments, MetaVoiceBatchArguments
    from tts_core.metavoice.options import MetaVoiceChanges, MetaVoiceOptions
    from tts_core.pipeline import PromptLike


class MetaVoicePipeline(Pipeline):
    """A MetaVoice of either side. Sound is at -14 LUFS. Texts of a batch have one sampling.

    prompt: the voice: one or more recordings of it, or a vector from `speaker`.
    """

    model = MODEL
    engine: MetaVoiceNet

    if TYPE_CHECKING:

        def generate(self, text: str, **given: Unpack[MetaVoiceArguments]) -> GenerationResult: ...
        def stream(
            self, text: str | Iterable[str], **given: Unpack[MetaVoiceArguments]
        ) -> Iterator[GenerationResult]: ...
        def generate_batch(
            self, texts: Sequence[str], **given: Unpack[MetaVoiceBatchArguments]
        ) -> list[GenerationResult]: ...
        def generate_codes(
            self,
            texts: Sequence[str],
            prompts: PromptLike | Sequence[PromptLike] = None,
            *,
            options: MetaVoiceOptions | None = None,
            **changes: Unpack[MetaVoiceChanges],
        ) -> list[np.ndarray]: ...

    def speaker(self, prompt: PromptLike) -> np.ndarray:
        """Compute the vector of a voice, (E,) float32, to pass as `prompt`; a vector is returned unchanged.

        Vectors are cached by the audio. Raises UsageError for a prompt that is not a voice.
        """
        with exclusive(self.engine.host):
            return self.engine.voice(prompt)
