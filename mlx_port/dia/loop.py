"""Dia's loop: the rows of a grid, one after the other.

Source: nari-labs/dia model.py@876125e (0626) and @2811af1 (v0.1), Apache-2.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import mlx.core as mx
import numpy as np

from mlx_port.dia.dia import Dia, Source
from mlx_port.dia.guard import fault
from mlx_port.dia.step import make_step
from mlx_port.host import Host
from tts_core.dia.grid import DelayGrid
from tts_core.dia.request import Request
from tts_core.errors import GenerationError


class DiaLoop:
    """Fills grids; what no text says is encoded once."""

    def __init__(self, network: Dia, host: Host):
        self.network, self.host = network, host
        self._nothing: mx.array | None = None

    def rows(self, request: Request) -> Iterator[DelayGrid]:
        """Fill the grid of a request row by row; yields it after each. One read from the device a row."""
        config = self.network.config
        grid = DelayGrid(
            config, request.prompts, request.max_frames, last_channel_free=request.last_channel_free
        )
        guided = request.sampling.cfg_scale != 0
        source = self._read(request.tokens, guided=guided)
        step = make_step(self.network, source, request.sampling, guided=guided)
        shape = grid.channels, config.decoder_config.vocab_size
        rows = grid.rows[:, : grid.filled]
        while not grid.done:
            numbers = request.uniform(grid.steps(), shape)
            uniform = None if numbers is None else self.host.to_device(numbers)
            ids = self.host.to_host(step(self.host.to_device(rows), uniform))
            if ids.min() < 0:
                raise self._fault(ids, request, grid, guided=guided)
            grid.accept(ids)
            yield grid
            rows = grid.rows[:, grid.filled - 1 : grid.filled]

    def _read(self, tokens: Sequence[np.ndarray], *, guided: bool) -> Source:
        if guided and self._nothing is None:
            self._nothing = self.network.encode_nothing()
        read = [self.host.to_device(ids) for ids in tokens]
        return self.network.read(read, self._nothing if guided else None)

    def _fault(self, ids: np.ndarray, request: Request, grid: DelayGrid, *, guided: bool) -> GenerationError:
        item = int((ids < 0).any(axis=1).argmax())
        tokens = self.host.to_device(request.tokens[item])
        rows = self.host.to_device(grid.rows[item : item + 1, : grid.filled])
        return fault(self.network, tokens, rows, guided=guided, text=item + 1)
