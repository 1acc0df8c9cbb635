"""One decoder row for a batch of texts: grid rows in, drawn ids out."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torch_ref.dia.dia import Cache, Dia, Source
from torch_ref.dia.sampling import candidates_0626, candidates_v01, draw
from torch_ref.guard import marked
from torch_ref.layers.cache import FixedCache, KeyValueCache
from torch_ref.layers.capture import capture
from torch_ref.layers.selection import first_largest
from tts_core.dia.sampling import Sampling

FIRST_CAPACITY = 512  # rows that a captured step attends to initially; doubled when full


class Step:
    """The plain form: every operation is launched from Python.

    guided: run unconditional rows too, after the conditional ones.
    """

    def __init__(self, network: Dia, source: Source, sampling: Sampling, *, guided: bool):
        self.network, self.source, self.sampling, self.guided = network, source, sampling, guided
        self.cache: list[KeyValueCache] = network.new_cache()

    def __call__(self, rows: Tensor, uniform: Tensor | None) -> Tensor:
        """Draw ids for the row after the last of `rows`; -1 for a text whose logits are not all finite.

        (B, T, C), (B, C, V) or None for greedy → (B, C).
        """
        return self.compute(rows, uniform, self.cache, self.source)

    def compute(self, rows: Tensor, uniform: Tensor | None, cache: Sequence[Cache], source: Source) -> Tensor:
        """Compute the step with any kind of cache."""
        texts, config = rows.shape[0], self.network.config
        tokens = torch.cat((rows, rows)) if self.guided else rows
        logits = self.network.next_logits(tokens, cache, source)
        candidates = candidates_v01 if config.cross_rope else candidates_0626
        # without guidance both are the conditional rows, which guidance leaves unchanged
        kept = candidates(logits[:texts], logits[-texts:], self.sampling, config.eos_token_id)
        return marked(first_largest(kept) if uniform is None else draw(kept, uniform), logits)


class GraphStep(Step):
    """The step captured as a CUDA graph: one launch per row instead of a thousand.

    The first call (the prefill) is not captured; then the cache moves into fixed buffers and the step is
    captured.
    """

    def __init__(self, network: Dia, source: Source, sampling: Sampling, *, guided: bool):
        super().__init__(network, source, sampling, guided=guided)
        self.capacity = FIRST_CAPACITY
        self.graph: torch.cuda.CUDAGraph | None = None
        self.fixed: list[FixedCache] = []
        self.still: list[Tensor] = []  # keeps alive tensors that only the graph reads
        self.ids: Tensor | None = None

    def __call__(self, rows: Tensor, uniform: Tensor | None) -> Tensor:
        if self.cache[0].length == 0:
            return super().__call__(rows, uniform)
        if self.graph is None or self.filled == self.capacity:
            self._fix(rows, uniform)
        assert self.graph is not None
        assert self.ids is not None
        self.rows.copy_(rows)
        if uniform is not None:
            self.uniform.copy_(uniform)
        self.graph.replay()
        self.filled += 1
        return self.ids

    def _fix(self, rows: Tensor, uniform: Tensor | None) -> None:
        """Move the cache into larger buffers, and capture the step on them."""
        if self.graph is None:
            self.filled = self.cache[0].length
        held = self._release()
        while self.filled >= self.capacity:
            self.capacity *= 2
        device = rows.device
        self.rows, self.uniform = rows.clone(), torch.empty(0) if uniform is None else uniform.clone()
        position = torch.tensor([self.filled], device=device)
        mask = torch.zeros(1, 1, 1, self.capacity, dtype=torch.bool, device=device)
        self.fixed = _moved(held, self.capacity, self.filled, position, mask)
        places = torch.arange(self.capacity, device=device)
        self.still = [position, mask, places]
        noise = None if uniform is None else self.uniform

        def run() -> Tensor:
            mask.copy_(places <= position)
            ids = self.compute(self.rows, noise, self.fixed, self.source)
            position.add_(1)
            return ids

        def again() -> None:
            position.fill_(self.filled)

        self.graph, self.ids = capture(run, device, again=again)

    def _release(self) -> list[tuple[Tensor, Tensor]]:
        """Free the last graph and return the only references to keys and values of every layer."""
        if self.graph is None:
            held = [cache.buffers for cache in self.cache if cache.buffers is not None]
            for cache in self.cache:
                cache.buffers = None
        else:
            held = [(fixed.keys, fixed.values) for fixed in self.fixed]
        self.graph, self.fixed, self.ids = None, [], None
        return held


def _moved(
    held: list[tuple[Tensor, Tensor]], capacity: int, filled: int, position: Tensor, mask: Tensor
) -> list[FixedCache]:
    """Copy the first `filled` rows of every layer into buffers of `capacity` rows.

    Removes the layers from `held` one by one, so that only one of them is in memory twice.
    """
    fixed: list[FixedCache] = []
    while held:
        keys, values = held.pop(0)
        fixed.append(
            FixedCache(_grown(keys, capacity, filled), _grown(values, capacity, filled), position, mask)
        )
    return fixed


def _grown(buffer: Tensor, capacity: int, filled: int) -> Tensor:
    larger = buffer.new_zeros(*buffer.shape[:2], capacity, buffer.shape[3])
    larger[:, :, :filled] = buffer[:, :, :filled]
    return larger


def make_step(network: Dia, source: Source, sampling: Sampling, *, guided: bool) -> Step:
    """Build the fastest form of the step for the network's device."""
    form = GraphStep if network.logits_dense.weight.is_cuda else Step
    return form(network, source, sampling, guided=guided)
