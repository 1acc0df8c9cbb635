"""One step of MARS5's autoregressive network for one text: a uniform number in, the next id out."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx
import numpy as np

from mlx_port.layers.chain import chain
from mlx_port.layers.spin import Spins
from mlx_port.mars5.codec_lm import CodecLM
from mlx_port.mars5.one_row import fused
from mlx_port.mars5.sampling import draw, log_probabilities, occurrences
from tts_core.mars5.options import Mars5Options
from tts_core.mars5.sampling import PENALTIES_ABOVE, end_penalties
from tts_core.mars5.sequence import CodecSequence

STEPS_KEPT = 256  # between two times that MLX's unused memory is freed
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
    """The first call processes the prompt, each later one the last drawn id. Calls do not wait."""

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
        self.fused = fused(network)
        self.lowest, self.end = sequence.vocabulary.lowest, sequence.vocabulary.end
        self.prompt = mx.array(sequence.prompt.tokens)[None]
        self.cache = network.new_cache(sequence.max_len)
        self.rotary = network.positions(sequence.max_len)
        self.spins = Spins(self.rotary(0, sequence.max_len))
        self.penalties = end_penalties(options, sequence.prompt.expected_tokens, sequence.room)
        self.window = min(options.rep_penalty_window, sequence.room)
        self.nothing = mx.full((1, self.window), network.config.vocab_size, mx.int32)  # empty places
        self.recent = mx.array(self.nothing)  # last ids, a ring
        self.tokens = self.prompt[:, -1:]
        self.position, self.generated = 0, 0
        self.draw = chain(self.drawn)

    def __call__(self, uniform: float) -> mx.array:
        """Draw the next id; -1 if its logits are not all finite. → (1,) int32."""
        network = self.network
        if self.generated:
            spin = self.spins(np.array([self.position]))
            logits = self.fused.next_logits(self.tokens, spin, self.cache)
            self.position += 1
        else:
            rows = network.rows(self.speaker, self.prompt)
            logits = network.next_logits(rows, self.rotary(0, rows.shape[1]), self.cache)
            self.position = rows.shape[1]
        seen = self.recent if self.generated > PENALTIES_ABOVE else self.nothing
        numbers = mx.array([[float(self.penalties[self.generated])], [uniform]])
        ids, self.tokens = self.draw(logits, seen, numbers[:1], numbers[1:])
        place = self.generated % self.window
        self.recent[:, place : place + 1] = self.tokens
        self.generated += 1
        mx.async_eval(ids, self.tokens, self.recent)
        if self.generated % STEPS_KEPT == 0:
            mx.clear_cache()
        return ids

    def drawn(
        self, logits: mx.array, seen: mx.array, penalty: mx.array, uniform: mx.array
    ) -> tuple[mx.array, mx.array]:
        """Draw an id from logits. (1, V); seen: (1, N) ids whose repetition is penalized.

        → (1,), and the next step's (1, 1).
        """
        ids = draw_ids(
            logits, seen, penalty, uniform, self.options, lowest=self.lowest, end=self.end, choose=self.choose
        )
        return ids, mx.maximum(ids, 0)[:, None]

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
