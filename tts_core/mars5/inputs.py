"""What a text of MARS5 brings to the running batch of the autoregressive network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tts_core.mars5.options import Mars5Options
from tts_core.mars5.sampling import PENALTIES_ABOVE, Mars5Numbers, end_penalties, numbers
from tts_core.mars5.tokens import CodecPrompt
from tts_core.nn.noise import Noise
from tts_core.speaking.rows import BatchText, TextInputs


@dataclass(frozen=True, eq=False)
class Mars5Inputs(TextInputs):
    """A text that takes a slot. codes: (Q, P), the reference's.  noise: one number per draw."""

    prompt: CodecPrompt
    codes: np.ndarray
    options: Mars5Options
    noise: Noise

    @cached_property
    def sampling(self) -> Mars5Numbers:
        return numbers(self.options)

    @property
    def positions(self) -> int:
        """Count the speaker and the prompt."""
        return 1 + len(self.prompt.tokens)

    @property
    def room(self) -> int:
        """Most ids that may be drawn."""
        return self.options.max_len - len(self.prompt.tokens)

    @property
    def window(self) -> int:
        """Number of last ids whose repetition is penalized."""
        return min(self.options.rep_penalty_window, self.room)

    @cached_property
    def penalties(self) -> np.ndarray:
        """Penalties of the end by step, (room,) float32."""
        return end_penalties(self.options, self.prompt.expected_tokens, max(1, self.room))

    @staticmethod
    def steps(texts: Sequence[BatchText]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return for the next draws, (N, 1) each: the place among the last ids, int32; the penalty of the
        end, float32; whether repeats are penalized.
        """
        rows = [
            (
                text.steps % text.inputs.window,
                text.inputs.penalties[min(text.steps, len(text.inputs.penalties) - 1)],
                text.steps > PENALTIES_ABOVE,
            )
            for text in texts
        ]
        kinds = zip(zip(*rows, strict=True), (np.int32, np.float32, np.bool_), strict=True)
        places, penalties, repeats = (np.array(column, kind)[:, None] for column, kind in kinds)
        return places, penalties, repeats
