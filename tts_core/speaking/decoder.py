"""A model's own part of a running batch, on either side: `decoder.py` of the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from tts_core.nn.host import Device
from tts_core.speaking.rows import Draws


class TextRead(NamedTuple):
    """A text that was read. Arrays are of the side.

    state: a NamedTuple of arrays with one row, or of tuples of them.
    keys: (keys, values) of each layer, (rows, K, T, E), of the positions before its first step.
    made: (1, ...), what its first draw draws from; None if its first step makes that.
    """

    state: Any
    keys: Sequence[tuple[Any, Any]]
    made: Any = None


class BatchDecoder(Protocol):
    """One step of a network for texts that share it. State is a NamedTuple of arrays with a row a text.

    network: whose rows are independent of each other on a CPU; None if the decoder sees to that.
    numbers: shape of a text's random numbers for a step.
    is_exact: keys are of just the rows that it computes.
    cache: class of a layer's keys and values; None for RowCache.
    window: keys that a row keeps; None for all.
    reserves: True if keys are allocated at once, for all slots where texts have one row, and kept by a batch
    of several: other work would take the memory into which they are to grow.
    steps: that one launch runs.
    ahead: launches before the first is read.
    reads_answers: True if draws depend on what the host answers to actions; None if there are no actions.
    """

    network: Any = None
    host: Device
    numbers: tuple[int, ...]
    is_exact: bool = False
    cache: Any = None
    window: int | None = None
    reserves: bool = False
    steps: int = 1
    ahead: int = 0
    reads_answers: bool | None = None

    def read(self, texts: Sequence[Any]) -> list[TextRead]:
        """Read texts up to their first steps, in one pass of the network. All have as many rows."""
        ...

    def step(self, state: Any, given: np.ndarray, at: Any, caches: Sequence[Any]) -> Any:
        """Run the network. → (N, ...), what `draw` draws from.

        given: (N, n), the host's numbers.
        at: RowPositions, of the caches.
        """
        ...

    def act(self, made: Any, state: Any, draws: Draws, uniform: Any) -> Any:
        """Draw what the host answers. → (N,) actions, -1 where logits were not all finite."""
        raise AssertionError("it has no actions")

    def draw(self, made: Any, state: Any, draws: Draws, uniform: Any, answers: np.ndarray) -> tuple[Any, Any]:
        """Draw. → ids, (N, ...), the first -1 where logits were not all finite; and the state after them.

        answers: (N, 2), the host's, zeros where draws do not read them.
        """
        ...
