"""A running batch on captured graphs: a step and its draws are one launch.

What differs between texts is on the device, in buffers that are allocated once: texts join and leave without
a new capture. The host copies a step's numbers, and reads ids late.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from torch_ref.batch import RunningBatch
from torch_ref.cuda.capture import capture
from torch_ref.cuda.early_read import EarlyRead
from torch_ref.cuda.noise import fill_uniform
from torch_ref.cuda.triton import compile_together
from torch_ref.host import Host
from torch_ref.reading import begin_read, finish_read
from tts_core.nn.noise import HostNoise
from tts_core.speaking.rows import BatchRows, Launched, TextInputs


class CapturedDecoder(Protocol):
    """Step and draws of B texts, whose places are slots, on the device.

    inputs: (2 + n, B) int64 for a step: how many steps a text has drawn, -1 where it takes no part; the row
    of keys that it writes; and the host's numbers. None where the device counts the steps.
    noise: (ring, B, ...) float32, uniform numbers for the step; of a ring, without inputs, those of the steps
    to come as log(-log(u)).
    acted: the read of actions, inside of the graph; None without actions.
    is_reused: False if its memory and graphs are freed with the last text.
    draws_first: True if a text's first ids are drawn as it is read, and kept until its first step.
    """

    host: Host
    noise: Tensor
    inputs: Tensor | None = None
    acted: EarlyRead | None = None
    steps: int = 1
    ahead: int = 1
    is_reused: bool = True
    draws_first: bool = False

    @property
    def sizes(self) -> Sequence[int]:
        """Numbers of slots in use that have a graph, in rising order, the last one of all."""
        return [self.noise.shape[1]]

    def prepare(self) -> None:
        """Capture the passes over prompts, which keep nothing here."""

    def join(self, texts: Mapping[int, Any]) -> Sequence[int]:
        """Read texts into their slots. Waits for nothing. Returns how many positions of each have keys."""
        ...

    def leave(self, slot: int) -> None:
        """Free a slot. Steps that run already still compute it."""

    def open(self) -> None:
        """Allocate what is freed with the last text."""

    def close(self) -> None:
        """Free it, and the graphs."""

    def run(self, slots: int) -> Tensor:
        """Compute a step of the first slots; this is captured."""
        ...

    def ids(self, tick: int, steps: int) -> Tensor:
        """Return the ids of the last steps, of which the first was at this tick. (steps, B, ...)."""
        ...

    def clear(self) -> None:
        """Undo a step that was run as a warm-up, where a text that joins does not write all of it anew."""

    def compiling(self) -> list[Callable[[], object]]:
        """List calls that launch each kernel once."""
        ...


class CapturedBatch(RunningBatch):
    """Slots for `texts` texts of at most `capacity` positions, allocated at once."""

    decoder: CapturedDecoder

    @torch.inference_mode()
    def __init__(self, decoder: CapturedDecoder, *, texts: int, capacity: int):
        self.decoder, self.host, self.rows = decoder, decoder.host, BatchRows(texts, capacity, is_fixed=True)
        self.steps, self.ahead = decoder.steps, decoder.ahead
        self.ticks = self.noised = 0
        device = decoder.noise.device
        self.begins = torch.zeros(2, texts, dtype=torch.int64, device=device)  # seeds, and steps at tick 0
        compile_together([*decoder.compiling(), partial(self._fill, 0, 1)])
        self.graphs = self._captured() if decoder.is_reused else {}

    @torch.inference_mode()
    def prepare(self) -> None:
        self.decoder.prepare()

    @torch.inference_mode()
    def join(self, texts: Mapping[int, TextInputs]) -> None:
        """Read what comes before texts' first steps, which are the next ones. Their slots must be free. If it
        fails, none joins.
        """
        self.graphs = self.graphs or self._captured()
        for (slot, text), read in zip(texts.items(), self.decoder.join(texts), strict=True):
            text_rows = self.rows.join(slot, text)
            text_rows.read, text_rows.first = read, int(self.decoder.draws_first)
        noises = [text.noise for text in texts.values()]
        seeds = [noise.seed if isinstance(noise, HostNoise) else 0 for noise in noises]
        begins = np.array(seeds, np.uint64).astype(np.int64), [-self.ticks] * len(seeds)
        slots = self.host.to_device(np.array([*texts]))
        self.begins[:, slots] = self.host.to_device(np.stack(begins))
        self.noised = self.ticks  # what was drawn ahead is drawn again, with these texts'

    @torch.inference_mode()
    def leave(self, slot: int) -> None:
        """Free a slot. Steps that run already still compute it."""
        self.rows.leave(slot)
        self.decoder.leave(slot)
        if not self.rows.texts and not self.decoder.is_reused:
            self.graphs = {}
            self.decoder.close()

    @torch.inference_mode()
    def launch(self, steps: int) -> Launched:
        """Run some steps of all texts that do not wait; waits for actions only."""
        running, failed, first = self.rows.begin(), list[int](), self.ticks
        for _ in range(steps):
            self._step()
        reading = begin_read(self.decoder.ids(first, steps))
        if self.decoder.acted is not None:
            _, failed = self.rows.answer(self.decoder.acted.wait())
        return Launched([reading], running, failed)

    def read(self, launched: Launched) -> np.ndarray:
        """Wait for a launch. → (steps, slots, ...) ids; WAITED of a slot that took no part."""
        return launched.ids(finish_read(launched.readings[0]), self.rows.slots)

    def _captured(self) -> dict[int, torch.cuda.CUDAGraph]:
        decoder, device = self.decoder, self.decoder.noise.device
        decoder.open()
        return {
            slots: capture(partial(decoder.run, slots), device, again=decoder.clear)[0]
            for slots in decoder.sizes
        }

    def _step(self) -> None:
        rows, inputs = self.rows, self.decoder.inputs
        if inputs is not None:
            given = np.vstack((rows.steps(), rows.positions()[: rows.slots], rows.given().T))
            inputs.copy_(self.host.to_device(given.astype(np.int64)))
        if inputs is not None or self.ticks == self.noised:
            self._draw_noise()
        count = 1 + max(rows.texts)
        self.graphs[next(slots for slots in self.graphs if slots >= count)].replay()
        self.ticks += 1
        rows.end()

    def _draw_noise(self) -> None:
        """Draw the numbers of the next steps, up to the ring's end."""
        noise, ticks = self.decoder.noise, self.ticks * (self.decoder.inputs is None)
        first, count = ticks % len(noise), len(noise) - ticks % len(noise)
        part = noise[first:]
        self._fill(ticks, count)
        for slot, text in self.rows.drawing.items():
            if not isinstance(text.inputs.noise, HostNoise):
                for index in range(count):
                    numbers = text.inputs.uniform(text.steps + index, tuple(part.shape[2:]))
                    part[index, slot].copy_(self.host.to_device(numbers))
        if self.decoder.inputs is None:
            part.log_().neg_().log_()
        self.noised = self.ticks + count

    def _fill(self, ticks: int, count: int) -> None:
        seeds, starts = self.begins
        inputs = self.decoder.inputs
        fill_uniform(self.decoder.noise, seeds, starts if inputs is None else inputs[0], ticks, count)


def sizes(texts: int) -> list[int]:
    """Return the numbers of rows that have a graph: powers of two, and all."""
    return [*(1 << power for power in range((texts - 1).bit_length())), texts]
