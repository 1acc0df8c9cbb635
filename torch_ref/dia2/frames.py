"""One step of Dia2 for one text: ids in, an action, then the codes of all streams out."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ref.dia2.dia2 import Dia2
from torch_ref.dia2.sampling import choose
from torch_ref.guard import marked
from tts_core.dia2.sampling import Sampling


class Frames:
    """The steps of one run, and the keys and values of those before.

    Rows are the conditional one and, with guidance, the unconditional one; both read the same codes.
    """

    def __init__(self, network: Dia2, sampling: Sampling):
        self.network, self.sampling = network, sampling
        self.cache = network.transformer.new_cache()
        config, weight = network.config, network.transformer.norm.weight
        self.empty = torch.tensor([config.text_zero_id, config.text_pad_id], device=weight.device)
        ids = torch.arange(config.audio_vocab_size, device=weight.device)
        self.is_code = (ids != config.audio_pad_id) & (ids != config.audio_bos_id)
        self.hidden = weight.new_zeros(0)

    @torch.inference_mode()
    def read(self, tokens: Tensor, start: int) -> None:
        """Run the transformer on steps from position `start`. tokens: (T, 2 + Q)."""
        rows = tokens[None]
        if self.sampling.is_guided:
            rows = torch.cat((rows, rows))
            rows[1, :, :2] = self.empty
        self.hidden = self.network.transformer(rows, start, self.cache)[:, -1]

    @torch.inference_mode()
    def action(self, uniform: Tensor | None) -> Tensor:
        """Choose the action of the last step. uniform: (A,) → (1,); -1 if logits are not finite."""
        logits = self.network.transformer.actions(self.hidden)
        noise = None if uniform is None else uniform[None]
        chosen = choose(logits[:1], logits[-1:], self.sampling.action, noise)
        return marked(chosen[:, None], logits[:, None])[0]

    @torch.inference_mode()
    def codes(self, main: int, second: int, uniform: Tensor | None) -> Tensor:
        """Choose the codes of the last step, one after the other; main, second: the machine's answer.

        uniform: (Q, V) → (Q,); -1 where logits are not finite.
        """
        rows, depformer = self.hidden.shape[0], self.network.depformer
        text = self.empty.new_full((rows,), main), self.empty.new_full((rows,), second)
        logits = self.network.transformer.codes(self.hidden)
        found, cache = [self._code(logits, uniform, 0, self.is_code)], depformer.new_cache()
        for stage in range(self.network.config.n_streams - 1):
            previous = found[-1].clamp(min=0).expand(rows)
            logits = depformer(stage, self.hidden, previous, text, cache)
            found.append(self._code(logits, uniform, stage + 1, None))
        return torch.cat(found)

    def _code(self, logits: Tensor, uniform: Tensor | None, stream: int, is_code: Tensor | None) -> Tensor:
        noise = None if uniform is None else uniform[None, stream, : logits.shape[-1]]
        chosen = choose(logits[:1], logits[-1:], self.sampling.audio, noise, is_code)
        return marked(chosen[:, None], logits[:, None])[0]
