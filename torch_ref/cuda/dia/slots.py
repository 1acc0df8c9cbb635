"""Slots for texts that decode in parallel: one captured step, which each text joins and leaves.

Positions, lengths, seeds, settings and ends are on the device, one of each a text, so that a step waits for
nothing from the host and is captured once. Draws are read some steps late.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from torch_ref.cpu.dia.few_rows import few_rows
from torch_ref.cpu.dia.slots import FewSlots
from torch_ref.cuda.capture import capture
from torch_ref.cuda.dia.draws import DiaDraws, DiaProgress, draw
from torch_ref.cuda.dia.fused import DecoderMemory, FusedDecoder, runs
from torch_ref.cuda.dia.reading import FusedReader
from torch_ref.cuda.noise import fill_uniform
from torch_ref.cuda.sampling import own_rows
from torch_ref.cuda.triton import compile_together
from torch_ref.dia.dia import Dia, DiaSource
from torch_ref.dia.slots import DiaSlots
from torch_ref.host import Host
from torch_ref.reading import Reading, begin_read, finish_read
from tts_core.dia.joining import DiaJoining
from tts_core.dia.sampling import SAMPLER_0626, DiaSampling, allowed_ids
from tts_core.nn.noise import HostNoise, Noise
from tts_core.nn.sampling import columns

NOISE_STEPS = 16  # steps whose noise is drawn at once
STEPS = 2  # with 4 the first sound came 3 ms later, and 64 streams were no faster
DRAWN_STEPS = 64  # draws that are kept


class DiaGraphSlots:
    """B slots for texts of at most `text_rows` bytes and `rows` grid rows, allocated at once."""

    steps, ahead = STEPS, 1  # of a launch, and launches before one is read, that keep the device busy
    can_step = True  # no text waits

    def __init__(self, decoder: FusedDecoder, *, texts: int, rows: int, text_rows: int):
        self.decoder, self.network = decoder, decoder.network
        self.reader, self.host = FusedReader(self.network), Host(self.network.logits_dense)
        self.texts, self.guided, self.ticks, self.noised = texts, decoder.constants is not None, 0, 0
        config = self.network.config
        self.memory = DecoderMemory.empty(self.network, texts, rows, text_rows, guided=self.guided)
        device, channels = self.network.logits_dense.weight.device, config.decoder_config.num_channels

        def whole(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.int32, device=device)

        self.states = whole(len(DiaProgress._fields), texts)  # so that joining is one copy
        self.rows = DiaDraws(
            **DiaProgress(*self.states)._asdict(),
            cells=whole(texts, rows, channels),
            tick=whole(texts),
            drawn=whole(DRAWN_STEPS, texts, channels),
            settings=torch.zeros(texts, len(columns(DiaSampling)._fields), device=device),
            arrivals=whole(texts),
            own=own_rows(texts, device),
        )
        self.delays = torch.tensor(config.delay_pattern, dtype=torch.int32, device=device)
        vocabulary = config.decoder_config.vocab_size
        allowed = allowed_ids(channels, vocabulary, config.eos_token_id)
        self.allowed = torch.from_numpy(allowed).to(device, torch.int8)
        self.noise = torch.full((NOISE_STEPS, texts, channels, vocabulary), 0.5, device=device)
        self.begins = torch.zeros(2, texts, dtype=torch.int64, device=device)
        self.seeds, self.starts = self.begins
        self.sources: list[tuple[Noise, int] | None] = [None] * texts  # and its step at tick 0
        self._clear()
        self._compile()
        self.graph, _ = capture(self._step, device, again=self._clear)

    @torch.inference_mode()
    def join(self, slot: int, text: DiaJoining) -> None:
        """Read a text and let it start with the next step; its slot must be free. Waits for nothing."""
        self._read(slot, text)
        to_device = self.host.to_device
        self.rows.cells[slot, : len(text.grid)] = to_device(text.grid)
        self.rows.settings[slot] = to_device(SAMPLER_0626.table([text.sampling])[0])
        states = DiaProgress(filled=text.filled, prompt=text.prompt_frames, limit=text.max_frames, ends=-1)
        self.states[:, slot] = to_device(np.array(states, np.int32))
        # a text's step at the first tick, so that step = this + tick
        first = text.filled - 1 - text.prompt_frames - self.ticks
        seed = text.noise.seed if isinstance(text.noise, HostNoise) else 0
        self.begins[:, slot] = to_device(np.array([np.uint64(seed).astype(np.int64), first]))
        self.sources[slot] = text.noise, first
        self.noised = self.ticks  # what was drawn ahead is drawn again, with this text's

    @torch.inference_mode()
    def leave(self, slot: int) -> None:
        """Free a slot. Steps that run already still compute it."""
        self.rows.limit[slot], self.rows.filled[slot] = -1, 1
        self.sources[slot] = None

    @torch.inference_mode()
    def launch(self, steps: int) -> Reading:
        """Run some steps; waits for nothing.

        Returns a read of (steps, B, C) drawn ids: -1 where a text's logits were not all finite.
        """
        first = self.ticks
        for _ in range(steps):
            if self.ticks == self.noised:
                self._draw_noise()
            self.graph.replay()
            self.ticks += 1
        start, end = first % DRAWN_STEPS, (self.ticks - 1) % DRAWN_STEPS + 1
        ring = self.rows.drawn
        return begin_read(ring[start:end] if start < end else torch.cat((ring[start:], ring[:end])))

    def read(self, launched: Reading) -> np.ndarray:
        """Wait for a launch. → (steps, B, C) int32."""
        return finish_read(launched)

    def _step(self) -> Tensor:
        logits = self.decoder.logits(self.rows, self.memory)
        self._draw(logits)
        return logits

    def _draw(self, logits: Tensor) -> None:
        draw(logits, self.noise, self.delays, self.allowed, self.rows, self.network.config)

    def _compile(self) -> None:
        """Compile all kernels of a step at the same time."""
        logits = self.decoder.head.new_zeros(len(self.memory.keys[0]), len(self.decoder.head))
        compile_together(
            [
                *self.decoder.compiling(self.memory),
                lambda: self.decoder.embed(self.rows, len(self.memory.keys[0])),
                lambda: self._draw(logits),
                lambda: fill_uniform(self.noise, self.seeds, self.starts, 0, 1),
            ]
        )

    def _clear(self) -> None:
        """Free all slots."""
        for state in self.rows[:-1]:  # all but `own`
            state.zero_()
        self.rows.filled.fill_(1)
        self.rows.limit.fill_(-1)
        self.rows.ends.fill_(-1)
        self.memory.lengths.fill_(1)
        self.ticks = self.noised = 0

    def _draw_noise(self) -> None:
        """Draw the noise of the next steps, up to the ring's end."""
        count = NOISE_STEPS - self.ticks % NOISE_STEPS
        first = self.ticks % NOISE_STEPS
        part = self.noise[first : first + count]
        fill_uniform(self.noise, self.seeds, self.starts, self.ticks, count)
        for slot, source in enumerate(self.sources):
            if source is not None and not isinstance(source[0], HostNoise):
                noise, start = source
                for place in range(count):
                    step = max(0, start + self.ticks + place)  # rows inside the prompt take any numbers
                    part[place, slot].copy_(torch.from_numpy(noise.uniform(step, tuple(part.shape[2:]))))
        part.log_().neg_().log_()
        self.noised = self.ticks + count

    def _read(self, slot: int, text: DiaJoining) -> None:
        """Compute keys and values of a text, and of the rows before the last known one."""
        memory, to_device, length = self.memory, self.host.to_device, len(text.tokens)
        keys, values = self.reader.read(to_device(text.tokens))
        memory.source_keys[:, slot, :, :length] = keys
        memory.source_values[:, slot, :, :length] = values
        memory.lengths[slot] = length
        before = text.filled - 1
        if not before:
            return
        source = DiaSource([*keys[:, None]], [*values[:, None]], None, self.decoder.constants)
        rows = to_device(text.grid[None, :before])
        cache = self.network.new_cache()
        self.network.model.decoder(torch.cat((rows, rows)) if self.guided else rows, cache, source)
        places = [slot, self.texts + slot] if self.guided else [slot]
        for index, held in enumerate(cache):
            assert held.buffers is not None
            for one, place in enumerate(places):
                memory.keys[index][place, :, :before] = held.buffers[0][one, :, :before]
                memory.values[index][place, :, :before] = held.buffers[1][one, :, :before]


@torch.inference_mode()
def make_slots(
    network: Dia, nothing: Tensor | None, *, texts: int, rows: int, text_rows: int
) -> DiaGraphSlots | DiaSlots:
    """Make slots in the fastest form that runs this network: captured, for a CPU, or plain.

    nothing: (1, 1, source width), the encoding of the empty text; None without guidance.
    texts: that run at once.
    rows: of a grid at most.
    text_rows: bytes of a text at most.
    """
    if runs(network):
        return DiaGraphSlots(FusedDecoder(network, nothing), texts=texts, rows=rows, text_rows=text_rows)
    if few_rows(network) is not None:
        return FewSlots(network, nothing, texts=texts)
    return DiaSlots(network, nothing, texts=texts)
