"""MARS5's autoregressive network captured: rows in, the network, the next ids and their rows out."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from torch_ref.batch import RunningBatch
from torch_ref.cuda.batch import CapturedBatch, CapturedDecoder
from torch_ref.cuda.mars5.draws import EMPTY, Mars5Draws, draw_ids
from torch_ref.cuda.mars5.rows import FirstRows, Mars5Rows, runs
from torch_ref.cuda.prompts import PromptReader, PromptRows
from torch_ref.host import Host
from torch_ref.layers.row_cache import RowCache, RowPositions
from torch_ref.mars5 import decoder as plain
from torch_ref.mars5.codec_lm import CodecLM
from tts_core.audio.voice_cache import MOST
from tts_core.mars5.inputs import SAMPLER, Mars5Inputs
from tts_core.memory.footprint import TOGETHER
from tts_core.nn.packed import Packed
from tts_core.nn.sampling import columns

DRAWN_STEPS = 16  # whose ids are kept
OWN = "counts", "recent", "window", "penalties", "drawn", "rows", "settings"  # of a text, but not of a step


class CapturedMars5(CapturedDecoder):
    """The autoregressive network for `texts` texts of at most `capacity` ids.

    lowest, end: ids of CodecVocabulary. Keys and values of a single text are freed with it.
    """

    steps, draws_first = 4, True

    @torch.inference_mode()
    def __init__(self, network: CodecLM, *, texts: int, capacity: int, lowest: int, end: int):
        self.network, self.host, self.is_reused = network, Host(network.embed), texts > 1
        self.lowest, self.end, self.capacity, self.rotary = lowest, end, capacity, network.positions(capacity)
        self.at = RowPositions(min(network.config.sliding_window, capacity))
        self.caches: list[RowCache] = []
        device = network.embed.weight.device
        self.inputs: Tensor = torch.zeros(2, texts, dtype=torch.int64, device=device)
        self.noise = torch.full((1, texts, 1), 0.5, device=device)
        self.drawn = torch.zeros(DRAWN_STEPS, texts, dtype=torch.int32, device=device)
        self.state = self._empty(self.inputs, self.noise[:, :, 0])
        self.voices = OrderedDict[bytes, Tensor]()  # by codes, speaker vectors that were read last

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
        captured = TOGETHER if self.is_reused else 0
        self.reader = PromptReader(self.layers.stack, self.layers.memory, self.host, most=captured)

    def close(self) -> None:
        del self.layers, self.reader
        self.caches = []

    def prepare(self) -> None:
        if self.is_reused:
            self.reader.prepare(self.state.rows)

    def join(self, texts: Mapping[int, Mars5Inputs]) -> Sequence[int]:
        """Read the speakers and the prompts, and draw the first ids."""
        to_device, given = self.host.to_device, [*texts.values()]
        spans = Packed.of(text.positions for text in given).spans
        ids = np.concatenate([np.pad(text.prompt.tokens, (1, 0)) for text in given])
        x = self.network.embed(to_device(ids).long())
        firsts = to_device(np.array([span.start for span in spans]))
        x[firsts] = torch.cat([self._speaker(text.codes) for text in given]).to(x.dtype)
        logits = self._logits(x, dict(zip(texts, spans, strict=True)))
        uniform = to_device(np.stack([text.uniform(0, (1,)) for text in given], axis=1))
        own = self._empty(self.inputs.new_zeros(2, len(given)), uniform)
        own.window.copy_(to_device(np.array([text.window for text in given], np.int32)))
        penalties, most = [text.penalties for text in given], own.penalties.shape[1]
        edges = np.stack([np.pad(penalty, (0, most - len(penalty)), mode="edge") for penalty in penalties])
        own.penalties.copy_(to_device(edges))
        own.settings.copy_(to_device(SAMPLER.table([text.sampling for text in given])))
        self._draw(logits, own)
        slots = to_device(np.array([*texts]))
        for name in OWN:
            getattr(self.state, name)[slots] = getattr(own, name)
        return [text.positions for text in given]

    def _logits(self, x: Tensor, spans: Mapping[int, slice]) -> Tensor:
        """Read prompts, whose rows are among x, (N, D), into their slots. → (B, V), after the last rows.

        The rows of a prompt that is longer than the window see one key more than those of a step: the layers
        read it.
        """
        made, short = dict[int, Tensor](), list[PromptRows]()
        for slot, span in spans.items():
            if (count := span.stop - span.start) <= self.at.capacity:
                short.append(PromptRows(span.start, count, slot))
                continue
            cache = [FirstRows(self.network.config.sliding_window, layer, slot) for layer in self.caches]
            made[slot] = self.network.next_logits(x[None, span], self.rotary(0, count), cache)
        if short:
            logits = self.layers.head(self.reader(x, short)).split(1)
            made |= zip((missing.row for missing in short), logits, strict=True)
        return torch.cat([made[slot] for slot in spans])

    def _speaker(self, codes: np.ndarray) -> Tensor:
        """Encode a reference, (Q, P), or take what was encoded of it. → (1, D)."""
        key = codes.tobytes()
        if key not in self.voices:
            self.voices[key] = self.network.speaker(self.host.to_device(codes.T[None]))
        self.voices.move_to_end(key)
        while len(self.voices) > MOST:
            self.voices.popitem(last=False)
        return self.voices[key]

    def _empty(self, inputs: Tensor, uniform: Tensor) -> Mars5Draws:
        """Make the state of texts without ids. inputs: as of the decoder.  uniform: of the draws."""
        texts, device, weight = inputs.shape[1], inputs.device, self.network.embed.weight
        return Mars5Draws(
            positions=inputs[1],
            step=inputs[0],
            uniform=uniform,
            counts=torch.zeros(texts, len(weight), dtype=torch.int32, device=device),
            recent=torch.full((texts, self.capacity), EMPTY, dtype=torch.int32, device=device),
            window=torch.ones(texts, dtype=torch.int32, device=device),
            penalties=torch.zeros(texts, self.capacity, device=device),
            drawn=torch.zeros(texts, dtype=torch.int32, device=device),
            rows=weight.new_zeros(texts, weight.shape[1]),
            settings=torch.zeros(texts, len(columns(SAMPLER.settings)._fields), device=device),
        )

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


def make_slots(network: CodecLM, *, texts: int, capacity: int, lowest: int, end: int) -> RunningBatch:
    """Open a captured running batch where the kernels support the network, else a plain one."""
    bounds = {"texts": texts, "capacity": capacity, "lowest": lowest, "end": end}
    if not runs(network):
        return plain.make_slots(network, **bounds)
    return CapturedBatch(CapturedMars5(network, **bounds), texts=texts, capacity=capacity)
