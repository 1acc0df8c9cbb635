"""Recordings that clients send, decoded within bounds."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from mlx_port.commands.serve.errors import invalid
from tts_core.audio.files import TooLongError, read_audio_at_its_rate
from tts_core.errors import UsageError

FINEST = 48_000  # Hz: recordings of a higher rate may be shorter, for memory's sake


def decoded(
    field: str, data: bytes, seconds: float, before: float = 0.0, samples: int = 0
) -> tuple[np.ndarray, int]:
    """Decode a sound file to (L,) float32 samples and their rate. Raises ApiError 400, also for too much.

    field: that holds it.
    seconds: of all recordings together, which have as many samples at most as that length has at FINEST Hz.
    before, samples: seconds and samples of those before it.
    """
    with tempfile.TemporaryDirectory(prefix="mlx-port-") as folder:
        path = Path(folder) / "recording"
        path.write_bytes(data)
        try:
            return read_audio_at_its_rate(
                path, most_seconds=seconds - before, most_samples=seconds * FINEST - samples
            )
        except UsageError as error:
            detail = str(error).removeprefix("audio: ").replace(str(path), "the upload").partition("; ")[0]
            if isinstance(error, TooLongError) and before:
                detail = f"the recordings are longer than {before + error.seconds:.6g} s together"
            message = f"{field}: {detail}; send a WAV, FLAC, MP3 or Ogg file with speech"
            raise invalid(field, message) from None
