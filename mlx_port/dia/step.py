"""One decoder row for a batch of texts: grid rows in, drawn ids out."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from mlx_port.dia.dia import Cache, Dia, Source
from mlx_port.guard import marked
from mlx_port.layers.cache import FixedCache, KeyValueCache
from mlx_port.sampling import candidates_0626, candidates_v01, draw
from tts_core.sampling import Sampling

FIRST_CAPACITY = 512  # rows that a compiled step attends to at first; doubled when full


class Step:
    """The plain form: every operation is built from Python.

    guided: whether unconditional rows run along, behind the conditional ones.
    """

    def __init__(self, network: Dia, source: Source, sampling: Sampling, *, guided: bool):
        self.network, self.source, self.sampling, self.guided = network, source, sampling, guided
        self.cache: list[KeyValueCache] = network.new_cache()

    def __call__(self, rows: mx.array, uniform: mx.array | None) -> mx.array:
        """Ids for the row behind the last of `rows`; -1 for a text whose logits are not all finite.

        (B, T, C), (B, C, V) or None for greedy → (B, C).
        """
        return self.compute(rows, uniform, self.cache, self.source)

    def compute(
        self, rows: mx.array, uniform: mx.array | None, cache: Sequence[Cache], source: Source
    ) -> mx.array:
        """The step's arithmetic, on any kind of cache."""
        texts, config = rows.shape[0], self.network.config
        tokens = mx.concatenate([rows, rows]) if self.guided else rows
        logits = self.network.next_logits(tokens, cache, source)
        candidates = candidates_v01 if config.cross_rope else candidates_0626
        # without guidance both are the conditional rows, and the guided logits are these
        kept = candidates(logits[:texts], logits[-texts:], self.sampling, config.eos_token_id)
        return marked(mx.argmax(kept, axis=-1) if uniform is None else draw(kept, uniform), logits)


class CompiledStep(Step):
    """The same step through mx.compile: traced once, its elementwise operations fused.

    The first call (the prefill) runs plainly; then the cache moves into fixed buffers.
    """

    def __init__(self, network: Dia, source: Source, sampling: Sampling, *, guided: bool):
        super().__init__(network, source, sampling, guided=guided)
        self.capacity = FIRST_CAPACITY
        self.buffers: list[tuple[mx.array, mx.array]] = []
        self.compiled = mx.compile(self._run)

    def __call__(self, rows: mx.array, uniform: mx.array | None) -> mx.array:
        if self.cache[0].length == 0:
            return super().__call__(rows, uniform)
        if not self.buffers or self.filled == self.capacity:
            self._fix()
        ids, self.buffers = self.compiled(rows, uniform, mx.array([self.filled]), self.buffers)
        self.filled += 1
        return ids

    def _run(
        self,
        rows: mx.array,
        uniform: mx.array | None,
        position: mx.array,
        buffers: list[tuple[mx.array, mx.array]],
    ) -> tuple[mx.array, list[tuple[mx.array, mx.array]]]:
        mask = (mx.arange(buffers[0][0].shape[2]) <= position)[None, None, None]
        fixed = [FixedCache(keys, values, position, mask) for keys, values in buffers]
        ids = self.compute(rows, uniform, fixed, self.source)
        return ids, [(cache.keys, cache.values) for cache in fixed]

    def _fix(self) -> None:
        """Put the cache into buffers with room."""
        if not self.buffers:
            self.filled = self.cache[0].length
            self.buffers = [cache.buffers for cache in self.cache if cache.buffers is not None]
        while self.filled >= self.capacity:
            self.capacity *= 2
        self.buffers = [
            (_fixed(keys, self.capacity, self.filled), _fixed(values, self.capacity, self.filled))
            for keys, values in self.buffers
        ]


def _fixed(buffer: mx.array, capacity: int, filled: int) -> mx.array:
    held = buffer[:, :, :filled]
    return mx.pad(held, [(0, 0), (0, 0), (0, capacity - filled), (0, 0)])


def make_step(network: Dia, source: Source, sampling: Sampling, *, guided: bool) -> Step:
    """The fastest form that MLX's device has: on the CPU there is no launch to save."""
    form = Step if mx.default_device() == mx.cpu else CompiledStep
    return form(network, source, sampling, guided=guided)
