"""MARS5's autoregressive network captured: rows in, the network, the next ids and their rows out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from torch_ref.batch import RunningBatch
from torch_ref.cuda.batch import CapturedBatch, CapturedDecoder
from torch_ref.cuda.mars5.draws import EMPTY, Mars5Draws, draw_ids
from torch_ref.cuda.mars5.rows import FirstRows, Mars5Rows, runs
from torch_ref.host import Host
from torch_ref.layers.row_cache import RowCache, RowPositions
from torch_ref.mars5 import decoder as plain
from torch_ref.mars5.codec_lm import CodecLM
from tts_core.mars5.inputs import SAMPLER, Mars5Inputs
from tts_core.nn.sampling import columns

DRAWN_STEPS = 16  # whose ids are kept


class CapturedMars5(CapturedDecoder):
    """The autoregressive network for `texts` texts of at most `room` ids.

    lowest, end: ids of CodecVocabulary. Keys and values of a single text are freed with it.
    """

    steps, draws_first = 4, True

    @torch.inference_mode()
    def __init__(self, network: CodecLM, *, texts: int, room: int, lowest: int, end: int):
        self.network, self.host, self.is_kept = network, Host(network.embed), texts > 1
        self.lowest, self.end, self.rotary = lowest, end, network.positions(room)
        self.at = RowPositions(min(network.config.sliding_window, room))
        self.caches: list[RowCache] = []
        weight, vocabulary = network.embed.weight, network.config.vocab_size
        device, width = weight.device, weight.shape[1]
        self.inputs: Tensor = torch.zeros(2, texts, dtype=torch.int64, device=device)
        self.noise = torch.full((1, texts, 1), 0.5, device=device)
        self.drawn = torch.zeros(DRAWN_STEPS, texts, dtype=torch.int32, device=device)
        self.state = Mars5Draws(
            positions=self.inputs[1],
            step=self.inputs[0],
            uniform=self.noise[:, :, 0],
            counts=torch.zeros(texts, vocabulary, dtype=torch.int32, device=device),
            recent=torch.full((texts, room), EMPTY, dtype=torch.int32, device=device),
            window=torch.ones(texts, dtype=torch.int32, device=device),
            penalties=torch.zeros(texts, room, device=device),
            drawn=torch.zeros(texts, dtype=torch.int32, device=device),
            rows=weight.new_zeros(texts, width),
            settings=torch.zeros(texts, len(columns(SAMPLER.settings)._fields), device=device),
        )

    def open(self) -> None:
        """Allocate keys and values."""
        config, weight = self.network.config, self.network.embed.weight
        texts = len(self.state.rows)
        shape = texts, config.num_attention_heads, self.at.capacity, config.head_dim
        layers = self.network.ar.layers
        self.caches = [RowCache(weight.new_zeros(shape), weight.new_zeros(shape), self.at) for _ in layers]
        self.layers = Mars5Rows(
            self.network, self.caches, self.rotary, self.state.positions, most_few=int(texts == 1)
        )

    def close(self) -> None:
        del self.layers
        self.caches = []

    def join(self, texts: Mapping[int, Mars5Inputs]) -> Sequence[int]:
        return [self._join(slot, text) for slot, text in texts.items()]

    def _join(self, slot: int, text: Mars5Inputs) -> int:
        """Read the speaker and the prompt, and draw the first id: a prompt's rows see one key more than those
        of a step, where it is longer than the window.
        """
        network, state, to_device = self.network, self.state, self.host.to_device
        speaker = network.speaker(to_device(text.codes.T[None]))
        rows = network.rows(speaker, to_device(text.prompt.tokens[None]))
        cache = [FirstRows(network.config.sliding_window, layer, slot) for layer in self.caches]
        logits = network.next_logits(rows, self.rotary(0, text.positions), cache)
        state.counts[slot] = 0
        state.recent[slot] = EMPTY
        state.window[slot] = text.window
        state.penalties[slot] = float(text.penalties[-1])
        state.penalties[slot, : len(text.penalties)] = to_device(text.penalties)
        state.settings[slot] = to_device(SAMPLER.table([text.sampling])[0])
        numbers = to_device(text.uniform(0, (1,)))[None]
        own = Mars5Draws(*(each[slot : slot + 1] for each in state))
        self._draw(logits, own._replace(step=torch.zeros_like(own.step), uniform=numbers))
        return text.positions

    def run(self, slots: int) -> Tensor:
        """Draw the next ids, whose rows the next step reads."""
        rows = self.state.rows.clone()  # a text that takes no part keeps its own
        self._draw(self.layers(rows), self.state)
        return self.drawn.copy_(torch.cat((self.drawn[1:], self.state.drawn[None])))

    def _draw(self, logits: Tensor, state: Mars5Draws) -> None:
        draw_ids(logits, self.network.embed.weight, state, lowest=self.lowest, end=self.end)

    def clear(self) -> None:
        """Undo nothing: a warm-up takes no part, and a text that joins writes its keys anew."""

    def ids(self, tick: int, steps: int) -> Tensor:
        return self.drawn[DRAWN_STEPS - steps :]

    def compiling(self) -> list[Callable[[], object]]:
        return []


def make_slots(network: CodecLM, *, texts: int, room: int, lowest: int, end: int) -> RunningBatch:
    """Open a captured running batch where the kernels support the network, else a plain one."""
    bounds = {"texts": texts, "room": room, "lowest": lowest, "end": end}
    if not runs(network):
        return plain.make_slots(network, **bounds)
    return CapturedBatch(CapturedMars5(network, **bounds), texts=texts, room=room)
