"""flite, the synthesizer that the voice learns from, called in this process.

Debian: `apt-get install flite`; macOS: `brew install flite`. FLITE_LIBRARIES may name the folder of its
shared libraries where they are not installed system-wide.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
from functools import lru_cache
from pathlib import Path

import numpy as np

SAMPLE_RATE = 16000


class _Wave(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_char_p),
        ("sample_rate", ctypes.c_int),
        ("num_samples", ctypes.c_int),
        ("num_channels", ctypes.c_int),
        ("samples", ctypes.POINTER(ctypes.c_short)),
    )


def speak(text: str, voice: str) -> np.ndarray:
    """A text in one of flite's voices (slt, rms, awb, kal16). → (L,) int16 at 16 kHz."""
    library, handle = _voice(voice)
    wave = library.flite_text_to_wave(text.encode(), handle)
    try:
        if wave.contents.sample_rate != SAMPLE_RATE:
            raise ValueError(
                f"flite: voice {voice} speaks at {wave.contents.sample_rate} Hz, not {SAMPLE_RATE}"
            )
        return np.ctypeslib.as_array(wave.contents.samples, (wave.contents.num_samples,)).copy()
    finally:
        library.delete_wave(wave)


def trimmed(samples: np.ndarray, lead: int, tail: int, threshold: int = 100) -> np.ndarray:
    """Speech with exactly `lead` samples of silence before it and `tail` behind; empty where none is."""
    loud = np.flatnonzero(np.abs(samples) > threshold)
    if len(loud) == 0:
        return samples[:0]
    first, last = int(loud[0]), int(loud[-1]) + 1
    front, back = samples[max(0, first - lead) : first], samples[last : last + tail]
    zeros = np.zeros(max(lead, tail), samples.dtype)
    return np.concatenate(
        [zeros[: lead - len(front)], front, samples[first:last], back, zeros[: tail - len(back)]]
    )


@lru_cache
def _voice(name: str) -> tuple[ctypes.CDLL, ctypes.c_void_p]:
    library = _open("flite")
    library.flite_text_to_wave.restype = ctypes.POINTER(_Wave)
    library.flite_text_to_wave.argtypes = (ctypes.c_char_p, ctypes.c_void_p)
    library.delete_wave.argtypes = (ctypes.POINTER(_Wave),)
    library.flite_init()
    for needed in ("cmulex", "usenglish"):
        _open(f"flite_{needed}")
    register = getattr(_open(f"flite_cmu_us_{name}"), f"register_cmu_us_{name}")
    register.restype, register.argtypes = ctypes.c_void_p, (ctypes.c_char_p,)
    return library, ctypes.c_void_p(register(None))


def _open(name: str) -> ctypes.CDLL:
    folder = os.environ.get("FLITE_LIBRARIES")
    if folder:
        path = next(iter(sorted(Path(folder).glob(f"lib{name}.*"))), None)
    else:
        path = ctypes.util.find_library(name)
    if path is None:
        raise FileNotFoundError(f"flite: lib{name} is not installed; install flite, or set FLITE_LIBRARIES")
    return ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
