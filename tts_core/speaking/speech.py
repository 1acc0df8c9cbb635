"""A speech is a generator: it yields what it needs next, and a session gives it that.

It never waits for a device, and knows nothing of other speeches. Each model has one, `speak` in its
`speech.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tts_core.audio.delivery import Pacing
from tts_core.results import FinishReason
from tts_core.text.captions import Word


@dataclass(frozen=True, eq=False)
class Encode:
    """Run a network on a recording, apart from the steps of others. Gives what `call` returns."""

    call: Callable[[], Any]


@dataclass(eq=False)
class Slot:
    """A text in a network's running batch.

    inputs: of the text, as the model's running batch takes them.
    index: of its row; None before it has joined, and after it has left.
    owner: the request that it is of; the session sets it.
    """

    inputs: Any
    index: int | None = None
    owner: Any = None


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


@dataclass(frozen=True)
class MoreText:
    """Wait for the next text that comes. Gives it, or None at its end."""


@dataclass(eq=False)
class CodecMemory:
    """A codec's memory of a piece's frames so far, for those that follow.

    before: (Q, F) codes that the piece continues, which are not heard.
    kept: of a stream, after its first window.
    """

    before: np.ndarray | None = None
    kept: Any = None


@dataclass(frozen=True, eq=False)
class Sound:
    """Let frames be decoded and heard, in the order of a speech, while the speech goes on.

    codes: (Q, F) int32.
    memory: of their piece.
    token_count: steps of the speech so far.
    words: that begin in these frames; with the last frames of a piece also those that begin later.
    ends: the piece.
    pacing: of the piece that it ends, where the text comes while it is spoken.
    lead: seconds of silence before the first piece of such a text.
    """

    codes: np.ndarray
    memory: CodecMemory
    token_count: int
    words: Sequence[Word] = field(default=())
    ends: bool = False
    pacing: Pacing | None = None
    lead: float | None = None


Ask = Encode | Ids | Append | Free | MoreText | Sound
Speech = Generator[Ask, Any, FinishReason]
