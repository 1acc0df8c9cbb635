"""One step for a batch of texts: a column of ids in, the next ids out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import mlx.core as mx

from mlx_port.guard import marked
from mlx_port.layers.cache import KeyValueCache
from mlx_port.metavoice.first_stage import FirstStage
from mlx_port.metavoice.sampling import guide, probabilities, race
from mlx_port.steps.chain import chain
from mlx_port.steps.metavoice.one_row import fused
from tts_core.metavoice.config import END_OF_AUDIO
from tts_core.metavoice.sampling import FirstStageSampling

STEPS_KEPT = 256  # between two times that MLX's unused memory is freed


def stacked(tokens: mx.array, sampling: FirstStageSampling, end_of_text: int) -> mx.array:
    """Stack the rows of guidance: full, without speaker, without text, as needed. (B, T) → (G·B, T)."""
    if sampling.rows < 3:
        return mx.tile(tokens, (sampling.rows, 1))
    return mx.concatenate([tokens, tokens, mx.where(tokens > END_OF_AUDIO, end_of_text, tokens)])


def speaker_rows(network: FirstStage, embeddings: mx.array, sampling: FirstStageSampling) -> mx.array:
    """Project the speakers of `stacked` rows; rows without a speaker have zeros. (B, E) → (G·B, 1, D)."""
    speakers = network.speakers(embeddings)
    return mx.concatenate([speakers, mx.zeros_like(speakers), speakers][: sampling.rows])


def draw_ids(logits: mx.array, waiting: mx.array | None, sampling: FirstStageSampling) -> mx.array:
    """Draw the next id of each text; -1 for one whose logits are not all finite.

    (G, B, V) logits of the rows of guidance, (B, V) waiting times or None for the most probable → (B,).
    """
    rows = [row.squeeze(0) for row in mx.split(logits, len(logits))]
    guided = guide(rows, sampling.cfg_scale, sampling.text_cfg_scale)
    ids = race(probabilities(guided, sampling), waiting)
    return marked(ids[:, None], mx.flatten(logits, 0, 1)[:, None])[:, 0]


class Step:
    """A step for a batch of texts: the first call reads whole prompts, the later ones a column each.

    embeddings: of the speakers, (B, E).  room: total positions.  end_of_text: the id that replaces text in
    rows without it.
    """

    def __init__(
        self,
        network: FirstStage,
        embeddings: mx.array,
        sampling: FirstStageSampling,
        *,
        room: int,
        end_of_text: int,
    ):
        self.network, self.sampling, self.end_of_text = network, sampling, end_of_text
        self.speakers = speaker_rows(network, embeddings, sampling)
        self.cache: list[KeyValueCache] = network.new_cache(room)
        self.fused = fused(network)
        self.draw = drawing(sampling)

    def __call__(self, tokens: mx.array, waiting: mx.array | None) -> mx.array:
        """Draw the ids after the last of `tokens`; -1 for a text whose logits are not all finite.

        (B, T), (B, V) waiting times or None for the most probable → (B,).
        """
        return self.compute(tokens, waiting, self.cache)

    def compute(self, tokens: mx.array, waiting: mx.array | None, cache: Sequence[KeyValueCache]) -> mx.array:
        """Compute the step."""
        if cache[0].length % STEPS_KEPT == 0:
            mx.clear_cache()
        return self.draw(self.logits(tokens, cache), *(() if waiting is None else (waiting,)))

    def logits(self, tokens: mx.array, cache: Sequence[KeyValueCache]) -> mx.array:
        """Compute logits of the rows of guidance, (G, B, V) float32."""
        rows = stacked(tokens, self.sampling, self.end_of_text)
        one_by_one = tokens.shape[1] == 1 and cache[0].length > 0
        logits = (self.fused if one_by_one else self.network).next_logits(rows, self.speakers, cache)
        return mx.unflatten(logits, 0, (-1, tokens.shape[0]))


@lru_cache(maxsize=64)
def drawing(sampling: FirstStageSampling) -> Callable[..., mx.array]:
    """Build `draw_ids` under one setting: of logits, and of waiting times but for the most probable ids."""

    @chain
    def ids(logits: mx.array, *waiting: mx.array) -> mx.array:
        return draw_ids(logits, waiting[0] if waiting else None, sampling)

    return ids


def make_step(
    network: FirstStage, embeddings: mx.array, sampling: FirstStageSampling, *, room: int, end_of_text: int
) -> Step:
    """Build the only form of the step: MLX builds its graph while the device computes."""
    return Step(network, embeddings, sampling, room=room, end_of_text=end_of_text)
