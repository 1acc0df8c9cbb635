"""A speech is a generator: it yields what it needs next, and a session gives it that.

It never waits for a device, and knows nothing of other speeches. Each model has one, `speak` in its
`speech.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tts_core.audio.delivery import Pacing
from tts_core.results import FinishReason, SpokenPiece
from tts_core.text.captions import Word


@dataclass(frozen=True, eq=False)
class Encode:
    """Run a network on a recording, apart from the steps of others. Gives what `call` returns.

    stage: of the results, that it counts for.
    """

    call: Callable[[], Any]
    stage: str = ""


@dataclass(eq=False)
class Slot:
    """A text in a network's running batch.

    inputs: of the text, as the model's running batch takes them.
    stage: of the results, that its steps count for.
    steps: about how many there are.
    index: of its row; None before it has joined, and after it has left.
    owner: the request that it is of, and begun: seconds of the clock; the session sets them.
    """

    inputs: Any
    stage: str = ""
    steps: int | None = None
    index: int | None = None
    owner: Any = None
    begun: float = 0.0


@dataclass(frozen=True, eq=False)
class Ids:
    """Wait for the ids that a slot draws next. The first time, the slot joins. Gives (steps, ...) ids.

    or_text: gives None instead as soon as there is text that the speech has not read.
    """

    slot: Slot
    or_text: bool = False


@dataclass(frozen=True, eq=False)
class Append:
    """Append text that has come to a slot. ids, more: as the model's running batch takes them."""

    slot: Slot
    ids: Sequence[int]
    more: bool


@dataclass(frozen=True, eq=False)
class Free:
    """Free a slot before the next step."""

    slot: Slot


class Run(Protocol):
    """Work under way, a step at a time."""

    @property
    def done(self) -> bool:
        """True after the last step."""
        ...

    def step(self) -> None:
        """Run a step. One that lacks memory ends the work."""
        ...

    def result(self) -> Any:
        """Return what was made. Raises GenerationError if the network computed NaN or infinity."""
        ...


@dataclass(frozen=True, eq=False)
class Made(Run):
    """Work of one step, that is done."""

    made: Any

    @property
    def done(self) -> bool:
        return True

    def step(self) -> None: ...

    def result(self) -> Any:
        return self.made


@dataclass(frozen=True, eq=False)
class Work:
    """Run a network for several steps, each beside a step of the others; one work after the other. Gives the
    result of the run.

    begin: starts it, in its turn. Raises ResourceError for too little memory.
    stage: of the results, that it counts for.
    steps: about how many it has.
    """

    begin: Callable[[], Run]
    stage: str = ""
    steps: int | None = None


@dataclass(frozen=True)
class MoreText:
    """Wait for the next text that comes. Gives it, or None at its end."""


@dataclass(eq=False)
class CodecMemory:
    """A codec's memory of a piece's frames so far, for those that follow.

    before: (Q, F) codes that the piece continues, which are not heard.
    state: of the codec's stream, after its first window; a call replaces it at its end.
    """

    before: np.ndarray | None = None
    state: Any = None


@dataclass(frozen=True, eq=False)
class Sound:
    """Let frames be decoded and heard, in the order of a speech, while the speech goes on.

    codes: (Q, F) int32.
    token_count: steps of the speech so far.
    memory: of their piece; None for a codec that needs none, whose windows share calls.
    source: what the codec decodes, where that is more than the codes.
    after: a change of the samples, (L,).
    is_urgent: it is decoded before others that are due.
    words: that begin in these frames; with the last frames of a piece also those that begin later.
    ends: the piece.
    is_kept: its samples are kept for the result of its piece.
    piece: that it ends, without its sound; None where results do not tell of pieces.
    pacing: of the piece that it ends, where the text comes while it is spoken.
    lead: seconds of silence before the first piece of such a text.
    """

    codes: np.ndarray
    token_count: int
    memory: CodecMemory | None = None
    source: Any = None
    after: Callable[[np.ndarray], np.ndarray] | None = None
    is_urgent: bool = False
    words: Sequence[Word] = ()
    ends: bool = False
    is_kept: bool = False
    piece: SpokenPiece | None = None
    pacing: Pacing | None = None
    lead: float | None = None


Ask = Encode | Ids | Append | Free | Work | MoreText | Sound
Speech = Generator[Ask, Any, FinishReason]


def clipped(samples: np.ndarray) -> np.ndarray:
    """Keep samples in [-1, 1]."""
    return np.clip(samples, -1, 1)
