"""Playback of pieces while the next one is generated. Needs the extra `play`."""

from __future__ import annotations

import queue
import threading
from types import TracebackType

import numpy as np

from tts_core.errors import GenerationError, NotFoundError, UsageError
from tts_core.extras import install

INSTALL = f"{install('play')}; on Linux also: apt install libportaudio2"


def check_playback() -> None:
    """Check that sound can be played. Raises NotFoundError naming what to install, UsageError without a
    device.
    """
    try:
        import sounddevice  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise NotFoundError(f"play: sounddevice is not installed; {INSTALL}") from None
    except OSError as error:  # its wheel for Linux brings no PortAudio
        raise NotFoundError(f"play: {error}; {INSTALL}") from None
    try:
        sounddevice.query_devices(kind="output")
    except (sounddevice.PortAudioError, ValueError) as error:
        raise UsageError(f"play: no output device ({error}); use --output instead of --play") from None


class Player:
    """Player of pieces, in order, on its own thread; leaving the `with` block waits for the last sound."""

    def __init__(self, sample_rate: int):
        self._parts: queue.Queue[np.ndarray | None] = queue.Queue()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._play, args=(sample_rate,), daemon=True)
        self._thread.start()

    def write(self, samples: np.ndarray) -> None:
        """Append (L,) float32 samples; returns at once."""
        self._parts.put(samples)

    def _play(self, sample_rate: int) -> None:
        import sounddevice  # pyright: ignore[reportMissingImports]

        try:
            with sounddevice.OutputStream(samplerate=sample_rate, channels=1, dtype="float32") as device:
                while (samples := self._parts.get()) is not None:
                    device.write(np.ascontiguousarray(samples[:, None]))
        except sounddevice.PortAudioError as error:
            self._error = error

    def __enter__(self) -> Player:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            return  # the thread is a daemon: an interruption is silent at once
        self._parts.put(None)
        self._thread.join()
        if self._error is not None:
            raise GenerationError(f"play: the device failed ({self._error}); use --output")
