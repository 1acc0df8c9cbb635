"""Input slices of the speaker encoder: overlapping slices of 1.6 seconds, as mel spectrograms.

Source: metavoiceio/metavoice-src (Apache-2.0) fam/quantiser/audio/speaker_encoder, which has it from
Real-Time-Voice-Cloning and Resemblyzer (MIT). Differs from upstream: no known difference.
"""

from __future__ import annotations

import numpy as np

from tts_core.audio.mel import mel_power

SAMPLE_RATE = 16_000  # Hz
HOP_LENGTH = 160  # samples per mel frame
N_FFT = 400
SLICE_FRAMES = 160
STEP_FRAMES = 77  # 1.3 slices per second, rounded to frames
LEAST_COVERAGE = 0.75  # share of a slice that is audio; a last slice with less is dropped
TRIM_DB = 20.0  # frames at both ends this far below the loudest one are silence


def slice_starts(n_samples: int) -> list[int]:
    """List the first mel frame of each slice of n_samples samples; at least one."""
    frames = -(-(n_samples + 1) // HOP_LENGTH)
    starts = list(range(0, max(1, frames - SLICE_FRAMES + STEP_FRAMES + 1), STEP_FRAMES))
    covered = (n_samples - starts[-1] * HOP_LENGTH) / (SLICE_FRAMES * HOP_LENGTH)
    return starts[:-1] if covered < LEAST_COVERAGE and len(starts) > 1 else starts


def padded_length(n_samples: int) -> int:
    """Count the samples after zeros are appended to fill the last slice."""
    return max(n_samples, (slice_starts(n_samples)[-1] + SLICE_FRAMES) * HOP_LENGTH)


def utterance_mel(samples: np.ndarray, n_mels: int) -> np.ndarray:
    """Compute the mel spectrogram of a recording, the last slice padded with silence.

    (L,) samples at 16 kHz → (T, n_mels) float32.
    """
    padded = np.pad(samples, (0, padded_length(len(samples)) - len(samples)))
    return mel_power(padded, SAMPLE_RATE, n_fft=N_FFT, hop_length=HOP_LENGTH, n_mels=n_mels)


def utterance_slices(samples: np.ndarray, n_mels: int) -> np.ndarray:
    """Cut a recording into the encoder's input slices. (L,) samples at 16 kHz → (P, 160, n_mels) float32."""
    mel = utterance_mel(samples, n_mels)
    return np.stack([mel[start : start + SLICE_FRAMES] for start in slice_starts(len(samples))])
