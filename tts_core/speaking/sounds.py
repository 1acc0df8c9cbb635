"""Sounds of requests, which a model's networks decode in calls of several."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from tts_core.codecs.policy import CodecPolicy
from tts_core.errors import CancelledError
from tts_core.nn.beside import Pending, Then
from tts_core.nn.guard import check_sound, checked
from tts_core.speaking.members import DueSound
from tts_core.speaking.net import Net
from tts_core.speaking.report import StageReport
from tts_core.speaking.speech import Sound
from tts_core.speaking.windows import WindowQueue

SILENT = np.zeros(0, np.float32)


class Sounds(WindowQueue[DueSound, np.ndarray]):
    """The queue of a session's sounds. A call decodes at most as many as there are places.

    policy, has_sound, report: of the session.
    is_wanted: False for a window whose request has left.
    """

    def __init__(
        self,
        net: Net,
        policy: CodecPolicy | None,
        report: StageReport,
        *,
        has_sound: bool,
        places: int,
        is_wanted: Callable[[DueSound], bool],
    ):
        self.net, self.policy, self.report = net, policy, report
        self.has_sound, self.places = has_sound, places
        self.has_listeners = policy is not None and policy.is_heard
        super().__init__(
            net.host,
            self._now,
            launch=self._beside if has_sound and net.host.overlaps else None,
            split=self._calls,
            owner=lambda window: window.member,
            is_urgent=lambda window: window.sound.is_urgent,
            is_wanted=is_wanted,
            most=places if self.has_listeners else None,
        )

    def _calls(self, windows: Sequence[DueSound]) -> list[list[int]]:
        """Divide windows into calls of the codec; those without frames need none."""
        heard = [place for place, window in enumerate(windows) if _has_frames(window.sound)]
        silent = [place for place in range(len(windows)) if place not in heard]
        calls = [[heard[k] for k in call] for call in self.net.split([windows[k].sound for k in heard])]
        calls = [call[k : k + self.places] for call in calls for k in range(0, len(call), self.places)]
        return [*calls, silent] if silent else calls

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
