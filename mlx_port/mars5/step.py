"""One step of MARS5's autoregressive network for one text: a uniform number in, the next id out."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx
import numpy as np

from mlx_port.mars5.codec_lm import CodecLM
from mlx_port.mars5.sampling import draw, log_probabilities, occurrences
from tts_core.mars5.options import Mars5Options
from tts_core.mars5.sampling import PENALTIES_ABOVE, end_penalties
from tts_core.mars5.sequence import CodecSequence

MARK = -1  # replaces an id drawn from NaN or infinite logits
Draw = Callable[[mx.array, mx.array], mx.array]


def draw_ids(
    logits: mx.array,
    seen: mx.array,
    penalty: mx.array,
    uniform: mx.array,
    options: Mars5Options,
    *,
    lowest: int,
    end: int,
    choose: Draw = draw,
) -> mx.array:
    """Draw an id from each row of logits, (B, V) → (B,); -1 where they are not all finite.

    seen: (B, N) ids whose repetition is penalized.  penalty, uniform: one number, or one per row, (B, 1).
    """
    counts = occurrences(seen, logits.shape[-1])
    scores = log_probabilities(logits, counts, penalty, options, lowest=lowest, end=end)
    return mx.where(mx.isfinite(logits).all(axis=-1), choose(scores, uniform), MARK)


class Step:
    """The plain form: every operation is built from Python.

    The first call processes the prompt, each later one the last drawn id. Calls do not wait for the device.
    """

    ahead = 1  # steps launched before an id is read

    def __init__(
        self,
        network: CodecLM,
        speaker: mx.array,
        sequence: CodecSequence,
        options: Mars5Options,
        choose: Draw = draw,
    ):
        """speaker: (1, D).  sequence: empty; its prompt is read.  choose: a function like `sampling.draw`."""
        self.network, self.speaker, self.options, self.choose = network, speaker, options, choose
        self.lowest, self.end = sequence.vocabulary.lowest, sequence.vocabulary.end
        self.prompt = mx.array(sequence.prompt.tokens)[None]
        self.cache = network.new_cache(sequence.max_len)
        self.rotary = network.positions(sequence.max_len)
        penalties = end_penalties(options, sequence.prompt.expected_tokens, sequence.room)
        self.penalties = mx.array(penalties)
        self.window = min(options.rep_penalty_window, sequence.room)
        self.recent = self.prompt[:, :0]
        self.position, self.generated = 0, 0

    def __call__(self, uniform: float) -> mx.array:
        """Draw the next id; -1 if its logits are not all finite. → (1,) int32."""
        network = self.network
        rows = (
            network.embed(self.recent[:, -1:]) if self.generated else network.rows(self.speaker, self.prompt)
        )
        rotation = self.rotary(self.position, rows.shape[1])
        logits = network.next_logits(rows, rotation, self.cache)
        seen = self.recent[:, -self.window :] if self.generated > PENALTIES_ABOVE else self.recent[:, :0]
        ids = self.drawn(logits, seen, self.penalties[self.generated], mx.array(uniform))
        self.recent = mx.concatenate([self.recent, mx.maximum(ids, 0)[:, None]], axis=1)[:, -self.window :]
        self.position += rows.shape[1]
        self.generated += 1
        mx.async_eval(ids)
        return ids

    def drawn(self, logits: mx.array, seen: mx.array, penalty: mx.array, uniform: mx.array) -> mx.array:
        """Draw an id from logits. (1, V); seen: (1, N) ids whose repetition is penalized → (1,)."""
        return draw_ids(
            logits, seen, penalty, uniform, self.options, lowest=self.lowest, end=self.end, choose=self.choose
        )

    def read(self, ids: mx.array) -> int:
        """Wait for the result of a call."""
        return int(np.array(ids)[0])


def make_step(
    network: CodecLM,
    speaker: mx.array,
    sequence: CodecSequence,
    options: Mars5Options,
    choose: Draw = draw,
) -> Step:
    """Build the only form of the step."""
    return Step(network, speaker, sequence, options, choose)
