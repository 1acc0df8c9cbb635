"""One step of Dia2 for one text: ids in, an action, then the codes of all streams out."""

from __future__ import annotations

import mlx.core as mx

from mlx_port.dia2.dia2 import Dia2
from mlx_port.dia2.sampling import choose
from mlx_port.guard import marked
from tts_core.dia2.sampling import Sampling


class Frames:
    """The steps of one run, and the keys and values of those before.

    Rows are the conditional one and, with guidance, the unconditional one; both read the same codes.
    """

    def __init__(self, network: Dia2, sampling: Sampling):
        self.network, self.sampling = network, sampling
        self.cache = network.transformer.new_cache()
        config = network.config
        self.empty = mx.array([config.text_zero_id, config.text_pad_id])
        ids = mx.arange(config.audio_vocab_size)
        self.is_code = (ids != config.audio_pad_id) & (ids != config.audio_bos_id)
        self.hidden = mx.zeros(0)

    def read(self, tokens: mx.array, start: int) -> None:
        """Run the transformer on steps from position `start`. tokens: (T, 2 + Q)."""
        rows = tokens[None]
        if self.sampling.is_guided:
            rows = mx.concatenate([rows, rows])
            rows[1, :, :2] = self.empty
        self.hidden = self.network.transformer(rows, start, self.cache)[:, -1]

    def action(self, uniform: mx.array | None) -> mx.array:
        """Choose the action of the last step. uniform: (A,) → (1,); -1 if logits are not finite."""
        logits = self.network.transformer.actions(self.hidden)
        noise = None if uniform is None else uniform[None]
        chosen = choose(logits[:1], logits[-1:], self.sampling.action, noise)
        return marked(chosen[:, None], logits[:, None])[0]

    def codes(self, main: int, second: int, uniform: mx.array | None) -> mx.array:
        """Choose the codes of the last step, one after the other; main, second: the machine's answer.

        uniform: (Q, V) → (Q,); -1 where logits are not finite.
        """
        rows, depformer = self.hidden.shape[0], self.network.depformer
        text = mx.full((rows,), main), mx.full((rows,), second)
        logits = self.network.transformer.codes(self.hidden)
        found, cache = [self._code(logits, uniform, 0, self.is_code)], depformer.new_cache()
        for stage in range(self.network.config.n_streams - 1):
            previous = mx.repeat(mx.maximum(found[-1], 0), rows)
            logits = depformer(stage, self.hidden, previous, text, cache)
            found.append(self._code(logits, uniform, stage + 1, None))
        return mx.concatenate(found)

    def _code(
        self, logits: mx.array, uniform: mx.array | None, stream: int, is_code: mx.array | None
    ) -> mx.array:
        noise = None if uniform is None else uniform[None, stream, : logits.shape[-1]]
        chosen = choose(logits[:1], logits[-1:], self.sampling.audio, noise, is_code)
        return marked(chosen[:, None], logits[:, None])[0]
