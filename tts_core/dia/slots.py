"""The interface of a running batch of Dia's decoder, which texts join and leave between two steps."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from tts_core.dia.joining import Joining


class Drawn(Protocol):
    """Draws of some steps, which the device may still compute."""

    def read(self) -> np.ndarray:
        """Wait for them. → (steps, B, C) int32; -1 where a text's logits were not all finite."""
        ...


class Slots(Protocol):
    """B slots on one side: `dia/slots.py`, in torch also `dia/plain_slots.py`. Free slots draw any ids."""

    @property
    def burst(self) -> int:
        """Steps between two reads of draws."""
        ...

    def join(self, slot: int, text: Joining) -> None:
        """Read a text and let it start with the next step; its slot must be free."""
        ...

    def leave(self, slot: int) -> None:
        """Free a slot. Steps that run already may still compute it."""
        ...

    def launch(self, steps: int) -> Drawn:
        """Run some steps; each text takes its own draws as its next rows."""
        ...
