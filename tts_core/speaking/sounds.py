"""Sounds of requests, which a model's networks decode in calls of several."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from tts_core.codecs.policy import CodecPolicy
from tts_core.errors import CancelledError
from tts_core.nn.beside import Pending, Then
from tts_core.nn.guard import check_sound, checked
from tts_core.pipeline import Callbacks
from tts_core.speaking.members import DueSound
from tts_core.speaking.net import Net
from tts_core.speaking.speech import Sound
from tts_core.speaking.windows import Due, WindowQueue, next_call

SILENT = np.zeros(0, np.float32)
SILENCE = Sound(np.zeros((0, 0), np.int32), 0)  # a window without frames


class Sounds(WindowQueue[DueSound, np.ndarray]):
    """The queue of a session's sounds. A call decodes at most as many as there are places.

    policy, has_sound, report: of the session.
    running: counts its requests.
    is_wanted: False for a window whose request has left.
    """

    def __init__(
        self,
        net: Net,
        policy: CodecPolicy | None,
        report: Callbacks,
        *,
        has_sound: bool,
        places: int,
        running: Callable[[], int],
        is_wanted: Callable[[DueSound], bool],
    ):
        self.net, self.policy, self.report = net, policy, report
        self.has_sound, self.places, self.running = has_sound, places, running
        self.has_listeners = policy is not None and policy.is_streamed
        super().__init__(
            net.host,
            self._now,
            launch=self._beside if has_sound and net.host.overlaps else None,
            choose=self._next,
            owner=lambda window: window.member,
            is_wanted=is_wanted,
            most=places if self.has_listeners else None,
        )

    def _next(self, windows: Sequence[DueSound], wait: bool) -> Sequence[int]:
        """Choose the windows of the next call of the codec; those without frames need none.

        wait: nothing else runs.
        """
        due = self._leads(windows)
        sounding = [index for index, window in enumerate(windows) if _has_frames(window.sound)]
        members = {windows[index].member for index in sounding}
        silent = [index for index, window in enumerate(windows) if window.member not in members]
        if silent:
            return silent
        sounding.sort(key=lambda index: due[index].lead)
        calls = self.net.split([windows[index].sound for index in sounding], self.policy)
        calls = [[sounding[k] for k in call[: self.places]] for call in calls]
        most = [self.net.most_rows(windows[call[0]].sound, self.policy) for call in calls]
        return next_call(due, calls, most, can_wait=not wait and len(members) < self.running())

    def _leads(self, windows: Sequence[DueSound]) -> list[Due]:
        """Find how long each window may wait; one that nobody hears before the end does not."""
        if not self.has_listeners:
            return [Due(0.0, math.inf, is_last=True)] * len(windows)
        counts = Counter(window.member for window in windows)
        leads = {member: member.parts.meter.lead for member in counts}
        rate = self.net.codec_config.frame_rate
        return [
            Due(
                leads[window.member],
                window.sound.codes.shape[1] / rate,
                window.sound.ends or counts[window.member] > 1,
            )
            for window in windows
        ]

    def _beside(self, windows: Sequence[DueSound]) -> Pending[list[np.ndarray | Exception]] | None:
        """Begin to decode windows."""
        sounds, begun = [window.sound for window in windows], time.perf_counter()
        launched = self.net.launch(sounds, self.policy) if all(map(_has_frames, sounds)) else None
        if launched is None:
            return None
        self._tell()

        def checked_all(waves: list[np.ndarray]) -> list[np.ndarray | Exception]:
            self._count(windows, begun)
            if any(sound.memory is not None for sound in sounds):  # it cannot be decoded again
                return [checked(wave) for wave in waves]
            for wave in waves:
                check_sound(wave)
            return [*waves]

        return Then(launched, checked_all)

    def _now(self, windows: Sequence[DueSound]) -> list[np.ndarray]:
        """Decode windows now. Raises CancelledError once all their requests are cancelled."""
        sounds = [window.sound for window in windows]
        if not (self.has_sound and all(map(_has_frames, sounds))):
            return [SILENT] * len(sounds)

        def check() -> None:
            self.report.check()
            if all(window.member.cancel.is_set() for window in windows):
                raise CancelledError("generation: cancelled")

        begun = time.perf_counter()
        self._tell()
        waves = self.net.decode(sounds, self.policy, check)
        self._count(windows, begun)
        return waves

    def _tell(self) -> None:
        if self.net.stages:
            self.report.tell(self.net.stages[-1])

    def _count(self, windows: Sequence[DueSound], begun: float) -> None:
        """Add the time of the last stage to each request. begun: seconds of the clock."""
        if self.net.stages:
            for window in windows:
                window.member.parts.count(self.net.stages[-1], begun)


def _has_frames(sound: Sound) -> bool:
    return sound.codes.shape[1] > 0
