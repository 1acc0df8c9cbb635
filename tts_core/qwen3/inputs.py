"""What a text of Qwen3-TTS brings to its running batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tts_core.nn.noise import Noise
from tts_core.qwen3.layout import TalkerInputs
from tts_core.qwen3.sampling import Qwen3Sampling
from tts_core.speaking.rows import BatchText, TextInputs


@dataclass(frozen=True, eq=False)
class Qwen3Inputs(TextInputs):
    """A text that takes a slot.

    speaker: (D,) float32, the vector of a recording.
    frames: (Q, F) int32, the codes of a recording.
    more: its text goes on: it waits where a frame has none yet.
    """

    layout: TalkerInputs
    sampling: Qwen3Sampling
    noise: Noise
    speaker: np.ndarray | None = None
    frames: np.ndarray | None = None
    more: bool = False

    @staticmethod
    def joined(texts: Sequence[Qwen3Inputs]) -> tuple[TalkerInputs, np.ndarray | None, np.ndarray | None]:
        """Join what texts read before their speech: layouts, speakers (N, D) and frames (Q, ΣF), of those
        texts that have them.
        """
        layouts = [text.layout for text in texts]
        speakers = [text.speaker for text in texts if text.speaker is not None]
        frames = [text.frames for text in texts if text.frames is not None]
        ids = {name: np.concatenate([getattr(one, name) for one in layouts]) for name in ("text", "codec")}
        return (
            replace(layouts[0], **ids),
            np.stack(speakers) if speakers else None,
            np.concatenate(frames, axis=1) if frames else None,
        )

    @property
    def ids(self) -> tuple[int, ...]:
        return self.layout.trailing

    @property
    def positions(self) -> int:
        return len(self.layout.text)

    def waits(self, text: BatchText) -> bool:
        """Return True if the text that goes with the last frame has not come."""
        return text.more and text.steps > len(text.ids)

    def given(self, text: BatchText) -> tuple[int]:
        """Return the id of the text that goes with the last frame."""
        place = text.steps - 1
        return (text.ids[place] if 0 <= place < len(text.ids) else self.layout.padding,)

    def read_with(self, frames: int) -> np.ndarray:
        """Return the text ids that are read with the first frames, (T,) int32."""
        trailing = self.layout.trailing[:frames]
        return np.array([*trailing, *[self.layout.padding] * (frames - len(trailing))], np.int32)
