"""One step for a batch of texts: a column of ids in, the next ids out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from torch_ref.cuda.capture import capture
from torch_ref.cuda.fixed_cache import FixedCache
from torch_ref.guard import marked
from torch_ref.layers.cache import KeyValueCache
from torch_ref.metavoice.draws import draw_rows, embed_rows
from torch_ref.metavoice.first_stage import Cache, FirstStage
from torch_ref.metavoice.fused import FusedLayers, fused_layers
from torch_ref.metavoice.sampling import guide, probabilities, race
from tts_core.metavoice.config import END_OF_AUDIO
from tts_core.metavoice.sampling import FirstStageSampling

MASK_ALIGNMENT = 16  # attention copies masks in every layer unless rows are a multiple of this


def stacked(tokens: Tensor, sampling: FirstStageSampling, end_of_text: int) -> Tensor:
    """Stack the rows of guidance: full, without speaker, without text, as needed. (B, T) → (G·B, T)."""
    if sampling.rows < 3:
        return tokens.repeat(sampling.rows, 1)
    return torch.cat([tokens, tokens, torch.where(tokens > END_OF_AUDIO, end_of_text, tokens)])


def speaker_rows(network: FirstStage, embeddings: Tensor, sampling: FirstStageSampling) -> Tensor:
    """Project the speakers of `stacked` rows; rows without a speaker have zeros. (B, E) → (G·B, 1, D)."""
    speakers = network.speakers(embeddings)
    return torch.cat([speakers, torch.zeros_like(speakers), speakers][: sampling.rows])


def draw_ids(logits: Tensor, waiting: Tensor | None, sampling: FirstStageSampling) -> Tensor:
    """Draw the next id of each text; -1 for one whose logits are not all finite.

    (G, B, V) logits of the rows of guidance, (B, V) waiting times or None for the most probable → (B,).
    """
    guided = guide(list(logits), sampling.cfg_scale, sampling.text_cfg_scale)
    ids = race(probabilities(guided, sampling), waiting)
    return marked(ids[:, None], logits.flatten(0, 1)[:, None])[:, 0]


class Step:
    """The plain form: every operation is launched from Python.

    embeddings: of the speakers, (B, E).  room: total positions.  end_of_text: the id that replaces text in
    rows without it.
    """

    def __init__(
        self,
        network: FirstStage,
        embeddings: Tensor,
        sampling: FirstStageSampling,
        *,
        room: int,
        end_of_text: int,
    ):
        self.network, self.sampling, self.end_of_text = network, sampling, end_of_text
        self.speakers = speaker_rows(network, embeddings, sampling)
        self.cache: list[KeyValueCache] = network.new_cache(room)

    def __call__(self, tokens: Tensor, waiting: Tensor | None) -> Tensor:
        """Draw the ids after the last of `tokens`; -1 for a text whose logits are not all finite.

        (B, T), (B, V) waiting times or None for the most probable → (B,).
        """
        return self.compute(tokens, waiting, self.cache)

    def compute(self, tokens: Tensor, waiting: Tensor | None, cache: Sequence[Cache]) -> Tensor:
        """Compute the step with any kind of cache."""
        return draw_ids(self.logits(tokens, cache), waiting, self.sampling)

    def logits(self, tokens: Tensor, cache: Sequence[Cache]) -> Tensor:
        """Compute logits of the rows of guidance, (G, B, V) float32."""
        rows = stacked(tokens, self.sampling, self.end_of_text)
        return self.network.next_logits(rows, self.speakers, cache).unflatten(0, (-1, tokens.shape[0]))


class GraphStep(Step):
    """The step captured as a CUDA graph, with fused layers if possible: one launch per id.

    The first call (the prefill) is not captured; the step is captured on the buffers that it filled.
    """

    def __init__(
        self,
        network: FirstStage,
        embeddings: Tensor,
        sampling: FirstStageSampling,
        *,
        room: int,
        end_of_text: int,
    ):
        whole = room + -room % MASK_ALIGNMENT
        super().__init__(network, embeddings, sampling, room=whole, end_of_text=end_of_text)
        self.graph: torch.cuda.CUDAGraph | None = None
        self.layers: FusedLayers | None = None
        self.still: list[Tensor] = []  # keeps alive tensors that only the graph uses

    def __call__(self, tokens: Tensor, waiting: Tensor | None) -> Tensor:
        if self.cache[0].length == 0:
            return super().__call__(tokens, waiting)
        if self.graph is None:
            self._capture(tokens, waiting)
        assert self.graph is not None
        self.tokens.copy_(tokens)
        if waiting is not None:
            self.waiting.copy_(waiting)
        self.graph.replay()
        return self.ids

    def _capture(self, tokens: Tensor, waiting: Tensor | None) -> None:
        device, filled = tokens.device, self.cache[0].length
        self.tokens, self.waiting = tokens.clone(), torch.empty(0) if waiting is None else waiting.clone()
        position = torch.tensor([filled], device=device)
        room = self.cache[0].reserve
        mask = torch.zeros(1, 1, 1, room, dtype=torch.bool, device=device)
        fixed = [fix(cache, position, mask) for cache in self.cache]
        self.layers = fused_layers(self.network, fixed, self.speakers.shape[0])
        places = torch.arange(room, device=device)
        self.still = [position, mask, places]
        noise = None if waiting is None else self.waiting

        def run() -> Tensor:
            if self.layers is not None:
                return self._fused(self.layers, noise, position)
            mask.copy_(places <= position)
            ids = self.compute(self.tokens, noise, fixed)
            position.add_(1)
            return ids

        def again() -> None:
            position.fill_(filled)

        self.graph, self.ids = capture(run, device, again=again)

    def _fused(self, layers: FusedLayers, noise: Tensor | None, position: Tensor) -> Tensor:
        """Compute the step with kernels only, and advance the position. → (B,) ids."""
        transformer, rows = self.network.transformer, len(self.speakers)
        table, places = cast(nn.Embedding, transformer.wtes[0]).weight, transformer.wpe.weight
        wide = torch.float32 if table.dtype == torch.float16 else table.dtype
        x, ids = table.new_empty(rows, table.shape[1], dtype=wide), torch.empty_like(self.tokens[:, 0])
        embed_rows(self.tokens, table, places, self.speakers, position, x, self.end_of_text)
        draw_rows(layers(x), noise, position, ids, self.sampling)
        return ids


def fix(cache: KeyValueCache, position: Tensor, mask: Tensor) -> FixedCache:
    """Reuse the buffers, without a copy, for writes at a position stored on the device."""
    assert cache.buffers is not None
    keys, values = cache.buffers
    return FixedCache(keys, values, position, mask)


def make_step(
    network: FirstStage, embeddings: Tensor, sampling: FirstStageSampling, *, room: int, end_of_text: int
) -> Step:
    """Build the fastest form of the step for the network's device."""
    form = GraphStep if embeddings.is_cuda else Step
    return form(network, embeddings, sampling, room=room, end_of_text=end_of_text)
