"""A model's own part of a running batch, on either side: `decoder.py` of the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from tts_core.nn.host import Device
from tts_core.speaking.rows import Draws


class TextRead(NamedTuple):
    """A text that was read. Arrays are of the side.

    state: a NamedTuple of arrays with one row.
    keys: (keys, values) of each layer, (rows, K, T, E), of the positions before its first step.
    made: (1, ...), what its first draw draws from; None if its first step makes that.
    """

    state: Any
    keys: Sequence[tuple[Any, Any]]
    made: Any = None


class BatchDecoder(Protocol):
    """One step of a network for texts that share it. State is a NamedTuple of arrays with a row a text.

    network: whose rows are independent of each other.
    numbers: shape of a text's random numbers for a step.
    window: keys that a row keeps; None for all.
    steps: that one launch runs.
    ahead: launches before the first is read.
    """

    network: Any
    host: Device
    numbers: tuple[int, ...]
    window: int | None = None
    steps: int = 1
    ahead: int = 0

    def read(self, text: Any) -> TextRead:
        """Read a text up to its first step."""
        ...

    def step(self, state: Any, given: np.ndarray, at: Any, caches: Sequence[Any]) -> Any:
        """Run the network. → (N, ...), what `draw` draws from.

        given: (N, n), the host's numbers.
        at: RowPositions, of the caches.
        """
        ...

    def draw(self, made: Any, state: Any, draws: Draws, uniform: Any) -> tuple[Any, Any]:
        """Draw. → ids, (N, ...), the first -1 where logits were not all finite; and the state after them."""
        ...
