"""Dia2 in a running batch: the transformer and the actions, then the codes of each text, stage by stage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from torch_ref.batch import RunningBatch
from torch_ref.device import name_of
from torch_ref.dia2.dia2 import Dia2
from torch_ref.guard import marked, watched
from torch_ref.host import Host
from torch_ref.layers.row_cache import RowCache, RowPositions
from torch_ref.limits.independent import sequences_apart
from torch_ref.sampling import draw_rows
from tts_core.dia2.inputs import FIRST_STREAM, SAMPLER, Dia2Inputs, allowed_ids, noise_shape
from tts_core.errors import GenerationError
from tts_core.nn.guard import NotFiniteError
from tts_core.nn.packed import Packed
from tts_core.nn.sampling import TextSettings
from tts_core.speaking.decoder import BatchDecoder, TextRead
from tts_core.speaking.rows import Draws


class Dia2State(NamedTuple):
    """codes: (N, Q), of the last step of each text."""

    codes: Tensor


class Dia2Decoder(BatchDecoder):
    """Both networks. Rows are the conditional ones of all texts, then the unconditional ones."""

    ahead = 1  # the next step acts before the codes of the last one are read

    def __init__(self, network: Dia2):
        self.network, self.host = network, Host(network.transformer.norm)
        config, device = network.config, network.transformer.norm.weight.device
        self.numbers, self.reads_answers = noise_shape(config), config.depformer_has_text
        self.empty = torch.tensor([config.text_zero_id, config.text_pad_id], device=device)
        allowed = allowed_ids(config.audio_vocab_size, (config.audio_pad_id, config.audio_bos_id))
        self.allowed = self.host.to_device(allowed)
        samplers = SAMPLER, FIRST_STREAM, SAMPLER  # of the action, of the first code and of the others
        self.settings = [TextSettings(sampler, self.host) for sampler in samplers]

    def read(self, texts: Sequence[Dia2Inputs]) -> list[TextRead]:
        """Read the steps of prefixes."""
        transformer, config, rows = self.network.transformer, self.network.config, texts[0].rows
        packed, stack = Packed.of(text.positions for text in texts), config.transformer
        caches = packed.caches(transformer.layers, self.host.to_device)
        if packed.total:
            before = np.concatenate([text.before for text in texts if text.positions])
            tokens = self.host.to_device(before)[None].repeat(rows, 1, 1)
            tokens[1:, :, :2] = self.empty
            with sequences_apart(transformer, packed):
                transformer(tokens, caches[0].length, caches)
        kind = transformer.compute or transformer.text_embed.embedding.weight.dtype
        shape = rows, stack.num_key_value_heads, 0, stack.head_dim
        empty = torch.zeros(shape, dtype=kind, device=self.empty.device)
        state = Dia2State(self.empty.new_zeros(1, config.n_streams))
        return [TextRead(state, keys) for keys in packed.keys(caches, empty)]

    def step(
        self, state: Dia2State, given: np.ndarray, at: RowPositions, caches: Sequence[RowCache]
    ) -> Tensor:
        """Run the transformer. → (R, D) after the last norm."""
        copies, texts = len(at.on_host) // len(given), len(given)
        angles, tokens = self.host.to_device(given).long().split((1, given.shape[1] - 1), dim=1)
        tokens = torch.cat((tokens[:, :2], torch.where(tokens[:, 2:] < 0, state.codes, tokens[:, 2:])), dim=1)
        rows = tokens.repeat(copies, 1)
        rows[texts:, :2] = self.empty
        return self.network.transformer(rows[:, None], angles.repeat(copies, 1)[..., None], caches)[:, 0]

    def act(self, made: Tensor, state: Dia2State, draws: Draws, uniform: Tensor) -> Tensor:
        """Choose an action for each text. → (N,), -1 where logits were not all finite."""
        return self._choose(self.network.transformer.actions(made), 0, draws, uniform)

    def draw(
        self, made: Tensor, state: Dia2State, draws: Draws, uniform: Tensor, answers: np.ndarray
    ) -> tuple[Tensor, Dia2State]:
        """Choose the codes. answers: (N, 2), the new ids of both text streams. → (N, Q)."""
        depformer, copies = self.network.depformer, len(made) // len(uniform)
        text, cache = self.host.to_device(answers).long().repeat(copies, 1), depformer.new_cache()
        found = [self._choose(self.network.transformer.codes(made), 1, draws, uniform)]
        for stage in range(self.network.config.n_streams - 1):
            previous = found[-1].clamp(min=0).repeat(copies)
            logits = depformer(stage, made, previous, (text[:, 0], text[:, 1]), cache)
            found.append(self._choose(logits, stage + 2, draws, uniform))
        codes = torch.stack(found, dim=1)
        return codes, Dia2State(codes.clamp(min=0))

    def _choose(self, logits: Tensor, draw: int, draws: Draws, uniform: Tensor) -> Tensor:
        """Choose an id for each text. (R, V) → (N,).

        draw: of its random numbers: 0 is the action, 1 the first code.
        """
        texts, noise = len(uniform), uniform[:, draw, : logits.shape[-1]]
        numbers = [setting.numbers[min(draw, 1)] for setting in draws.settings]
        sampler, settings = self.settings[min(draw, 2)].of(numbers)
        guided = self.host.to_device(np.array([[setting.is_guided] for setting in draws.settings]))
        pair = logits[:texts], torch.where(guided, logits[-texts:], logits[:texts])
        allowed = self.allowed if draw == 1 else None
        ids = draw_rows(pair, sampler.named(settings, 2), noise, sampler, allowed=allowed)
        return marked(ids[:, None], torch.cat(pair)[:, None])[:, 0]


@torch.inference_mode()
def make_slots(network: Dia2, *, texts: int, capacity: int, **bounds: bool) -> RunningBatch:
    """Open a running batch of at most `texts` texts that read at most `capacity` steps."""
    return RunningBatch(Dia2Decoder(network), texts=texts, capacity=capacity)


def fault(network: Dia2, tokens: Tensor, text: tuple[int, int]) -> GenerationError:
    """Build the error that names the first layer with NaN or infinity, by running a text's steps again.

    tokens: (T, 2 + Q), all inputs so far.  text: ids of both streams after the last step.
    """
    transformer, depformer = network.transformer, network.depformer
    dtype = name_of(transformer.text_embed.embedding.weight.dtype)
    with watched(network) as found, torch.inference_mode():
        hidden = transformer(tokens[None], 0, transformer.new_cache())[:, -1]
        transformer.actions(hidden)
        previous = transformer.codes(hidden).argmax(dim=-1).clamp(max=depformer.codebook_size - 1)
        main, second = (previous.new_full((1,), part) for part in text)
        cache = depformer.new_cache()
        for stage in range(len(depformer.stage_sets)):
            previous = depformer(stage, hidden, previous, (main, second), cache).argmax(dim=-1)
    return NotFiniteError(next(iter(found), None), dtype, text=1, row=tokens.shape[0])
