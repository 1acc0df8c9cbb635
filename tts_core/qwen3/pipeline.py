"""Qwen3-TTS's pipeline: text and a voice in, codes and speech out.

Source: QwenLM/Qwen3-TTS@022e286, Apache-2.0.
Differs from upstream: a long text is spoken in pieces; speech that takes longer than anybody reads its text
is cut off, with a warning; a text that contains a control token is refused, and so are a transcript that does
not fit its recording, and an instruction that the checkpoint would drop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Unpack

from tts_core.nn.calls import exclusive
from tts_core.qwen3.model import MODEL
from tts_core.qwen3.net import Qwen3Net
from tts_core.results import GenerationResult
from tts_core.speaking.pipeline import Pipeline

if TYPE_CHECKING:
    import numpy as np

    from tts_core.doors import Qwen3Arguments, Qwen3BatchArguments
    from tts_core.pipeline import PromptLike
    from tts_core.qwen3.options import Qwen3Changes, Qwen3Options


class Qwen3Pipeline(Pipeline):
    """A Qwen3-TTS of either side.

    prompt: of a Base model: a recording, with its transcript, which speech continues, or without, for its
    voice alone; or a vector from `speaker`. Text that comes is read with the frames; after a recording with
    its transcript speech begins with the first sentence. `generate` decodes as the original does, in pieces
    of 300 frames with 25 of context: the first 300 equal the stream's up to rounding.
    """

    model = MODEL
    engine: Qwen3Net

    if TYPE_CHECKING:

        def generate(self, text: str, **given: Unpack[Qwen3Arguments]) -> GenerationResult: ...
        def stream(
            self, text: str | Iterable[str], **given: Unpack[Qwen3Arguments]
        ) -> Iterator[GenerationResult]: ...
        def generate_batch(
            self, texts: Sequence[str], **given: Unpack[Qwen3BatchArguments]
        ) -> list[GenerationResult]: ...
        def generate_codes(
            self,
            texts: Sequence[str],
            prompts: PromptLike | Sequence[PromptLike] = None,
            *,
            options: Qwen3Options | None = None,
            **changes: Unpack[Qwen3Changes],
        ) -> list[np.ndarray]: ...

    def speaker(self, prompt: PromptLike) -> np.ndarray:
        """Compute the vector of a voice, (D,) float32, to pass as `prompt`; a vector is returned unchanged.

        Vectors are cached by the audio. Raises UsageError for a prompt that is not a voice, and for a
        model that takes none.
        """
        with exclusive(self.engine.host):
            return self.engine.voice(prompt)
