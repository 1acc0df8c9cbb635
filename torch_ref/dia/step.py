"""One decoder row for a batch of texts: grid rows in, drawn ids out."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torch_ref.cuda.capture import capture
from torch_ref.cuda.fixed_cache import FixedCache
from torch_ref.dia.dia import Cache, Dia, Source
from torch_ref.dia.sampling import candidates_0626, candidates_v01, draw
from torch_ref.guard import marked
from torch_ref.layers.cache import KeyValueCache
from torch_ref.layers.selection import first_largest
from tts_core.dia.sampling import Sampling


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
        candidates = candidates_v01 if config.cross_rope else candidates_0626
        logits = self.network.next_logits(tokens, cache, source)
        # without guidance both are the conditional rows, which guidance leaves unchanged
        kept = candidates(logits[:texts], logits[-texts:], self.sampling, config.eos_token_id)
        return marked(first_largest(kept) if uniform is None else draw(kept, uniform), logits)


class GraphStep(Step):
    """The same step captured as a CUDA graph, for GPUs on which the kernels do not run.

    The first call (the prefill) runs plainly; then the cache moves into buffers of `rows` grid rows and the
    step is captured.
    """

    def __init__(self, network: Dia, source: Source, sampling: Sampling, *, guided: bool, rows: int):
        super().__init__(network, source, sampling, guided=guided)
        self.capacity = rows
        self.graph: torch.cuda.CUDAGraph | None = None
        self.still: list[Tensor] = []  # keeps alive tensors that only the graph reads

    def __call__(self, rows: Tensor, uniform: Tensor | None) -> Tensor:
        if self.cache[0].length == 0:
            return super().__call__(rows, uniform)
        if self.graph is None:
            self._capture(rows, uniform)
        assert self.graph is not None
        self.rows.copy_(rows)
        if uniform is not None:
            self.uniform.copy_(uniform)
        self.graph.replay()
        return self.ids

    def _capture(self, rows: Tensor, uniform: Tensor | None) -> None:
        device, filled = rows.device, self.cache[0].length
        self.rows, self.uniform = rows.clone(), torch.empty(0) if uniform is None else uniform.clone()
        position = torch.tensor([filled], device=device)
        mask = torch.zeros(1, 1, 1, self.capacity, dtype=torch.bool, device=device)
        self.fixed = [self._moved(cache, position, mask) for cache in self.cache]
        places = torch.arange(self.capacity, device=device)
        self.still = [position, mask, places]
        noise = None if uniform is None else self.uniform

        def run() -> Tensor:
            mask.copy_(places <= position)
            ids = self.compute(self.rows, noise, self.fixed, self.source)
            position.add_(1)
            return ids

        def again() -> None:
            position.fill_(filled)

        self.graph, self.ids = capture(run, device, again=again)

    def _moved(self, cache: KeyValueCache, position: Tensor, mask: Tensor) -> FixedCache:
        """Copy a layer's rows into buffers of the whole capacity and free the old ones."""
        assert cache.buffers is not None
        held, cache.buffers = cache.buffers, None
        larger = [one.new_zeros(*one.shape[:2], self.capacity, one.shape[3]) for one in held]
        for new, one in zip(larger, held, strict=True):
            new[:, :, : cache.length] = one[:, :, : cache.length]
        return FixedCache(larger[0], larger[1], position, mask)


def make_step(network: Dia, source: Source, sampling: Sampling, *, guided: bool, rows: int) -> Step:
    """Build the fastest form of the step for the network's device. rows: of the whole grid."""
    if network.logits_dense.weight.is_cuda:
        return GraphStep(network, source, sampling, guided=guided, rows=rows)
    return Step(network, source, sampling, guided=guided)
