"""The voice that MARS5 is to speak with, checked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tts_core.errors import UsageError
from tts_core.mars5.sampling import Mars5Settings
from tts_core.prompt import Prompt
from tts_core.text.checks import check_words

Voice = Prompt | np.ndarray | None  # a bare (Q, P) array is the codes of a voice


@dataclass(frozen=True)
class Sizes:
    """What a request has to fit: the codec's numbers."""

    sample_rate: int  # Hz
    hop_length: int  # samples per frame
    n_codebooks: int
    codebook_size: int

    @property
    def frame_rate(self) -> float:
        """Frames per second."""
        return self.sample_rate / self.hop_length


@dataclass(frozen=True)
class Reference:
    """A voice, as samples (L,) float32 with the silence in front, or as codes (Q, P) int32; one is None.

    transcript: what it says, in a deep clone; None in a shallow one.
    """

    samples: np.ndarray | None
    codes: np.ndarray | None
    transcript: str | None
    frames: int  # P


def read_reference(
    prompt: Voice, sizes: Sizes, settings: Mars5Settings, *, deep_clone: bool | None
) -> Reference:
    """The voice, checked. deep_clone: None is deep where there is a transcript.

    Raises UsageError for no reference, one that is empty, silent, too short or too long, or whose numbers are
    none; for a deep clone without a transcript.
    """
    if prompt is None:
        raise UsageError(
            "prompt: MARS5 speaks with the voice of a reference; give Prompt.of(audio=...), 5 to 10 s of speech"
        )
    given = (prompt if isinstance(prompt, Prompt) else Prompt.of(codes=prompt)).one
    deep = given.text is not None if deep_clone is None else deep_clone
    if deep and given.text is None:
        raise UsageError(
            "deep_clone: a deep clone reads what the reference says; give its transcript, or deep_clone=False"
        )
    transcript = given.text if deep else None
    if transcript is not None:
        check_words("transcript", transcript)
    if given.audio is not None:
        samples = _samples(given.audio, sizes, settings)
        return Reference(samples, None, transcript, -(-len(samples) // sizes.hop_length))
    codes = _codes(np.asarray(given.codes), sizes)
    _check_length(codes.shape[1] * sizes.hop_length, sizes, settings)
    return Reference(None, codes, transcript, codes.shape[1])


def _samples(audio: np.ndarray, sizes: Sizes, settings: Mars5Settings) -> np.ndarray:
    samples = np.asarray(audio)
    if samples.dtype.kind != "f":  # 16-bit samples read as they are would be 32,768 times too loud
        raise UsageError("prompt: audio must be floating-point samples in [-1, 1]")
    if samples.ndim != 1 or len(samples) == 0 or not np.isfinite(samples).all():
        raise UsageError("prompt: audio must be a non-empty 1-D array of finite samples")
    if len(samples) < sizes.hop_length:
        raise UsageError(f"prompt: {len(samples)} samples are less than a frame; give a second or more")
    if not samples.any():
        raise UsageError("prompt: the reference is silent; give some seconds of speech")
    _check_length(len(samples), sizes, settings)
    pad = int(settings.ref_audio_pad * sizes.sample_rate)
    return np.pad(samples.astype(np.float32), (pad, 0))


def _check_length(samples: int, sizes: Sizes, settings: Mars5Settings) -> None:
    seconds = samples / sizes.sample_rate
    if seconds > settings.max_prompt_dur:
        raise UsageError(
            f"prompt: {seconds:.1f} s of reference, the networks were made for {settings.max_prompt_dur:g}; "
            "cut it to 5 to 10 s, or raise max_prompt_dur"
        )


def _codes(codes: np.ndarray, sizes: Sizes) -> np.ndarray:
    if codes.ndim != 2 or codes.shape[0] != sizes.n_codebooks or codes.shape[1] == 0:
        raise UsageError(f"prompt: codes of shape {codes.shape}; expected ({sizes.n_codebooks}, frames)")
    if codes.dtype.kind not in "iu":
        raise UsageError(f"prompt: codes of type {codes.dtype}; give whole numbers")
    if not (codes.min() >= 0 and codes.max() < sizes.codebook_size):
        raise UsageError(f"prompt: codes outside 0 .. {sizes.codebook_size - 1}")
    return codes.astype(np.int32)
