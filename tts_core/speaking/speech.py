"""A speech is a generator: it yields what it needs next, and a session gives it that.

It never waits for a device, and knows nothing of other speeches. Each model has one, `speak` in its
`speech.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

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


@dataclass(frozen=True, eq=False)
class Append:
    """Append text that has come to a slot. ids, more: as the model's running batch takes them."""

    slot: Slot
    ids: Sequence[int]
    more: bool


@dataclass(eq=False)
class Slot:
    """A text in a network's running batch. The session sets what has a default, from `index` on.

    inputs: of the text, as the model's running batch takes them.
    stage: of the results, that its steps count for.
    steps: about how many there are.
    index: of its row; None before it has joined, and after it has left.
    owner: the speech that it is of.
    texts: that came before it has joined.
    begun: seconds of the clock.
    error: that it could not join for.
    """

    inputs: Any
    stage: str = ""
    steps: int | None = None
    index: int | None = None
    owner: Any = None
    texts: list[Append] = field(default_factory=list)
    begun: float = 0.0
    error: Exception | None = None


@dataclass(frozen=True, eq=False)
class Ids:
    """Wait for the ids that a slot draws next. The first time, the slot joins. Gives (steps, ...) ids.

    or_text: gives None instead as soon as there is text that the speech has not read.
    """

    slot: Slot
    or_text: bool = False


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


class Spoken(NamedTuple):
    """A speech that has ended. codes: (Q, F) int32, all of its frames."""

    codes: np.ndarray
    finish_reason: FinishReason


@dataclass(frozen=True, eq=False)
class All:
    """Run speeches that do not depend on each other, several at once where the session lets them; they are
    heard in this order. Gives what each has spoken.

    text: of the only one, a request whose text has come: it begins once it fits.
    pacing: of that text, where it follows others.
    """

    speeches: Sequence[Speech]
    text: Any = None
    pacing: Pacing | None = None


@dataclass(frozen=True)
class MoreText:
    """Wait for the next text that comes. Gives it, or None at its end."""


ENDED = object()  # as the state of a stream: after its last window, which was filled up with other frames


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
    token_count: steps of its piece so far.
    memory: of their piece; None for a codec that needs none.
    source: what the codec decodes, where that is more than the codes.
    after: a change of the samples, (L,).
    words: that begin in these frames; with the last frames of a piece also those that begin later.
    ends: the piece.
    in_result: its samples are kept for the result of its piece.
    piece: that it ends, without its sound; None where results do not tell of pieces.
    pacing: of text that has come: of the piece that it ends, where a model reads it while it speaks.
    lead: seconds of silence before the first piece of such a text.
    """

    codes: np.ndarray
    token_count: int
    memory: CodecMemory | None = None
    source: Any = None
    after: Callable[[np.ndarray], np.ndarray] | None = None
    words: Sequence[Word] = ()
    ends: bool = False
    in_result: bool = False
    piece: SpokenPiece | None = None
    pacing: Pacing | None = None
    lead: float | None = None


Need = Encode | Ids | Append | Free | Work | All | MoreText | Sound
Speech = Generator[Need, Any, FinishReason]


def clipped(samples: np.ndarray) -> np.ndarray:
    """Keep samples in [-1, 1]."""
    return np.clip(samples, -1, 1)


def in_order(request: Any, speech: Callable[[Any, int | None], Speech]) -> Speech:
    """Run the speeches of a request's pieces: all at once, or one after the other where it limits their
    frames, each with the frames that are left.

    request: with pieces and max_frames.  speech: of a piece; its argument after that is None for no limit.
    """
    left, pieces = request.max_frames, request.pieces
    if left is None:
        spoken = yield All([speech(piece, None) for piece in pieces])
        return "length" if any(result.finish_reason == "length" for result in spoken) else "stop"
    is_cut = False
    for index, piece in enumerate(pieces, start=1):
        [(codes, reason)] = yield All([speech(piece, left)])
        left, is_cut = left - codes.shape[1], is_cut or reason == "length"
        if not left and index < len(pieces):
            return "length"
    return "length" if is_cut else "stop"
