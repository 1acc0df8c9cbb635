"""Requests that a session speaks, and the speeches that each of them runs."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tts_core.audio.delivery import Pacing
from tts_core.results import FinishReason
from tts_core.speaking.delivery import Delivered
from tts_core.speaking.speech import Ids, Need, Run, Sound, Speech, Spoken, Work


@dataclass(eq=False, kw_only=True)
class Utterance:
    """A speech under way: of a request, or one of several that a speech runs at once.

    parent: that runs it.
    is_released: its sounds are decoded; those of others wait for the speeches before them.
    waits: what it waits for.
    held: its last sound, which ends the request if nothing follows.
    sounds: that wait.
    pacing: of text that has come, for its next sound.
    codes: of all sounds, where a speech runs it.
    children: speeches that it runs, in order.
    finish_reason: once it has ended.
    """

    speech: Speech
    parent: Utterance | None = None
    is_released: bool = False
    has_begun: bool = False
    waits: Need | None = None
    held: Sound | None = None
    sounds: list[Sound] = field(default_factory=list)
    pacing: Pacing | None = None
    codes: list[np.ndarray] = field(default_factory=list)
    children: list[Utterance] = field(default_factory=list)
    finish_reason: FinishReason | None = None

    @property
    def member(self) -> Member:
        """The request that it is of."""
        member = self if self.parent is None else self.parent.member
        assert isinstance(member, Member)
        return member

    @property
    def takes_text(self) -> bool:
        """True if it waits for ids, but takes text instead."""
        return isinstance(self.waits, Ids) and self.waits.or_text

    @property
    def spoken(self) -> Spoken:
        """What it has spoken, once it has ended."""
        assert self.finish_reason is not None
        return Spoken(np.concatenate(self.codes, axis=1), self.finish_reason)

    def begun(self, at_once: int) -> list[Utterance]:
        """Begin the next of its speeches, as long as fewer than `at_once` run; return them."""
        running = sum(child.has_begun and child.finish_reason is None for child in self.children)
        new = [child for child in self.children if not child.has_begun][: at_once - running]
        for utterance in new:
            utterance.has_begun = True
        return new


@dataclass(eq=False, kw_only=True)
class Member(Utterance):
    """A request that has joined.

    request: the request whose memory counts: itself, or its last sentence that has come.
    texts: that came and were not read; None is the end.
    has_ended: the end was read.
    is_away: it holds no place: it waited for text without a slot.
    """

    key: int
    request: Any
    parts: Delivered
    cancel: threading.Event
    texts: deque[str | None] = field(default_factory=deque)
    has_ended: bool = False
    is_away: bool = False

    def take_text(self) -> str | None:
        """Take the next text that its speech has not read; None is the end."""
        text = self.texts.popleft()
        self.has_ended |= text is None
        return text


@dataclass(frozen=True, eq=False)
class DueSound:
    """A sound in the queue. reason: of the end of the request, with its last one."""

    member: Member
    sound: Sound
    reason: FinishReason | None = None


@dataclass(eq=False)
class Job:
    """Work in the queue.

    run: None before its turn.
    is_stepped: a step of it ran.
    begun: seconds of the clock.
    """

    voice: Utterance
    work: Work
    run: Run | None = None
    is_stepped: bool = False
    begun: float = 0.0
