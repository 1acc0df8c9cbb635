"""Slots of a network's running batch, and launches that are not read yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Protocol

import numpy as np

from tts_core.errors import own_error
from tts_core.nn.sentinels import Sentinel
from tts_core.speaking.speech import Slot

WAITED = Sentinel.WAITED  # in place of a text's first id: it took no part in the step


class RunningBatch(Protocol):
    """Texts that share the steps of one network: `batch.py` of either side.

    steps: that one launch runs.
    ahead: launches before the first is read.
    together: positions of texts that join with one call, at most; one text may have more.
    """

    steps: int
    ahead: int
    together: int

    @property
    def can_step(self) -> bool:
        """True if a text takes part in the next step."""
        ...

    def prepare(self) -> None:
        """Do what the first texts would wait for. Texts that run stay as they are."""

    def join(self, texts: Mapping[int, Any]) -> None:
        """Let texts begin with the next launch, all or none. They have as many rows, and are given by their
        slots, which must be free.
        """
        ...

    def feed(self, slot: int, ids: Sequence[int], *, more: bool) -> None:
        """Append to a text that goes on, where its inputs do not hold it. more: it still does."""
        raise AssertionError("its texts come with their inputs")

    def leave(self, slot: int) -> None:
        """Free a slot before the next launch."""
        ...

    def launch(self, steps: int) -> Any:
        """Run some steps; waits for nothing. Returns what `read` reads."""
        ...

    def read(self, launched: Any) -> np.ndarray:
        """Wait for a launch. → (steps, texts, ...) ids by slot, -1 where logits were not all finite."""
        ...


class Running:
    """The slots of a running batch of at most `places` texts."""

    def __init__(self, batch: RunningBatch, places: int):
        self.batch, self._places = batch, places
        self._slots: dict[int, Slot] = {}  # by index
        self._launched: deque[tuple[Any, dict[int, Slot]]] = deque()

    def prepare(self) -> None:
        """Let the batch do what its first texts would wait for; a model without steps has none."""
        if self.batch is not None:
            self.batch.prepare()

    @property
    def can_step(self) -> bool:
        """True if a text takes part in the next step."""
        return bool(self._slots) and self.batch.can_step

    @property
    def free(self) -> int:
        """Indices that are free."""
        return self._places - len(self._slots)

    @property
    def taken(self) -> list[Slot]:
        """The slots that have joined."""
        return [*self._slots.values()]

    def of(self, member: Any) -> list[Slot]:
        """List the slots of a request that have joined."""
        return [slot for slot in self.taken if slot.owner.member is member]

    @property
    def has_launched(self) -> bool:
        """True if steps run that are not read."""
        return bool(self._slots and self._launched)

    def join(self, slots: Sequence[Slot]) -> list[Exception | None]:
        """Let the texts of slots join at the lowest free indices; there must be enough. Those with as many
        rows are read together.

        Returns the error of each that cannot join. Raises an error that may belong to the batch's steps.
        """
        free = sorted(set(range(self._places)) - self._slots.keys())
        for group in groups([*zip(free, slots, strict=False)], self.batch.together):
            self._join(group)
        return [slot.error for slot in slots]

    def _join(self, group: Sequence[tuple[int, Slot]]) -> None:
        """Let the texts of a group join; if they cannot all, those of each half."""
        try:
            self.batch.join({index: slot.inputs for index, slot in group})
        except Exception as error:
            found = own_error(error)
            if len(group) == 1:
                group[0][1].error = found
                return
            del found
        else:
            for index, slot in group:
                self._slots[index], slot.index = slot, index
            return
        # Here the error is gone, and with it what its frames kept in memory.
        half = len(group) // 2
        self._join(group[:half])
        self._join(group[half:])

    def feed(self, slot: Slot, ids: Sequence[int], *, more: bool) -> None:
        """Append to the text of a slot that has joined. more: it still goes on."""
        assert slot.index is not None, "the slot has joined"
        self.batch.feed(slot.index, ids, more=more)

    def leave(self, slot: Slot) -> None:
        """Free a slot that has joined. Ids of it that are not read yet reach nobody."""
        if slot.index is not None:
            self.batch.leave(slot.index)
            del self._slots[slot.index]
            slot.index = None

    def advance(self) -> list[tuple[Slot, np.ndarray]]:
        """Launch the next steps and read the oldest. Returns the slots that took part, each with the ids of
        its steps.
        """
        if not self._slots:
            self._launched.clear()
            return []
        while len(self._launched) <= self.batch.ahead and self.batch.can_step:
            self._launched.append((self.batch.launch(self.batch.steps), dict(self._slots)))
        if not self._launched:
            return []
        launched, slots = self._launched.popleft()
        ids = self.batch.read(launched)
        drawn = [(slot, _of_steps(ids[:, index])) for index, slot in slots.items() if slot.index == index]
        return [(slot, own) for slot, own in drawn if len(own)]


def groups(slots: Sequence[tuple[int, Slot]], most: int) -> Iterator[list[tuple[int, Slot]]]:
    """Divide texts, with their indices, into those that one pass reads: of as many rows, and several of at
    most `most` positions.
    """
    for _, alike in groupby(
        sorted(slots, key=lambda slot: slot[1].inputs.rows), lambda slot: slot[1].inputs.rows
    ):
        group, read = list[tuple[int, Slot]](), 0
        for slot in alike:
            count = slot[1].inputs.reads
            if group and read + count > most:
                yield group
                group, read = [], 0
            group.append(slot)
            read += count
        yield group


def _of_steps(ids: np.ndarray) -> np.ndarray:
    """Leave out the steps in which a text took no part. ids: (steps, ...)."""
    return ids[ids.reshape(len(ids), -1)[:, 0] != WAITED]
