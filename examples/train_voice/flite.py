"""flite, the synthesizer that the voice learns from, called through ctypes.

Its "clustergen" voices (slt, rms, awb) use parameters: every 5 ms a mel-cepstrum, a pitch and five strengths
of voicing, from which it filters pulses and noise into a waveform. Parameters, waveform and the times of
phones are read here.

Debian: `apt-get install flite`; macOS: `brew install flite`. FLITE_LIBRARIES may name the folder of its
shared libraries if they are not installed system-wide.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
from ctypes import POINTER, c_char_p, c_float, c_int, c_short, c_void_p
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

SAMPLE_RATE = 16000
TICK = 80  # samples from one row of parameters to the next: 5 ms
CEPSTRUM = 25  # coefficients; the first one is the loudness
STRENGTHS = 5  # bands of voicing, 0 to 1 each


class _Wave(ctypes.Structure):
    _fields_ = (
        ("type", c_char_p),
        ("sample_rate", c_int),
        ("num_samples", c_int),
        ("num_channels", c_int),
        ("samples", POINTER(c_short)),
    )


class _Track(ctypes.Structure):
    _fields_ = (
        ("type", c_char_p),
        ("num_frames", c_int),
        ("num_channels", c_int),
        ("times", POINTER(c_float)),
        ("frames", POINTER(POINTER(c_float))),
    )


_NAMES = """
    pau aa ae ah ao aw ax ay b ch d dh eh er ey f g hh ih iy jh k l m n ng ow oy p r s sh t th uh uw v w y
    z zh
"""
PHONES: list[str] = list(_NAMES.split())  # "pau" is a pause


class Sound(NamedTuple):
    """A phone's place in PHONES, its end in seconds, and the end of its word in the text (0 for a pause)."""

    phone: int
    end: float
    word_end: int


class Spoken(NamedTuple):
    """Speech with its parameters.

    samples: (L,) int16.  pitch: (N,) Hz, 0 if unvoiced.  cepstra: (N, 25).  strengths: (N, 5).

    Row n of the parameters belongs to sample 80 n.
    """

    text: str
    samples: np.ndarray
    pitch: np.ndarray
    cepstra: np.ndarray
    strengths: np.ndarray
    sounds: list[Sound]


def speak(text: str, voice: str) -> Spoken:
    """Speak a text in one of flite's clustergen voices."""
    flite = _library()
    utterance = flite.flite_synth_text(text.encode(), _voice(voice))
    try:
        features = ctypes.cast(utterance, POINTER(c_void_p))[0]
        smoothed = flite.mlpg(
            flite.val_track(flite.feat_val(features, b"param_track")),
            flite.val_cg_db(flite.feat_val(features, b"cg_db")),
        )
        try:
            parameters = _rows(smoothed)
        finally:
            flite.delete_track(smoothed)
        strengths = _rows(flite.val_track(flite.feat_val(features, b"str_track")))
        wave = flite.utt_wave(utterance).contents
        if wave.sample_rate != SAMPLE_RATE:
            raise ValueError(
                f"flite: voice {voice} has {wave.sample_rate} Hz, {SAMPLE_RATE} are needed; use another voice"
            )
        samples = np.ctypeslib.as_array(wave.samples, (wave.num_samples,)).copy()
        return Spoken(
            text, samples, parameters[:, 0], parameters[:, 1:], strengths, _sounds(flite, utterance)
        )
    finally:
        flite.delete_utterance(utterance)


def _sounds(flite: ctypes.CDLL, utterance: int) -> list[Sound]:
    sounds, item = [], flite.relation_head(flite.utt_relation(utterance, b"Segment"))
    while item:
        phone, word_end = PHONES.index(flite.item_feat_string(item, b"name").decode()), 0
        if phone:
            found = flite.ffeature(item, b"R:SylStructure.parent.parent.R:Token.parent.file_pos")
            word_end = flite.val_int(found)
        sounds.append(Sound(phone, flite.item_feat_float(item, b"end"), word_end))
        item = flite.item_next(item)
    return sounds


def _rows(track: ctypes._Pointer[_Track]) -> np.ndarray:
    """Copy a track's rows. → (N, channels) float64."""
    held = track.contents
    rows = [held.frames[n][: held.num_channels] for n in range(held.num_frames)]
    return np.array(rows).reshape(len(rows), held.num_channels)


@lru_cache
def _library() -> ctypes.CDLL:
    library = _open("flite")
    track, wave = POINTER(_Track), POINTER(_Wave)
    for name, result, arguments in (
        ("flite_synth_text", c_void_p, (c_char_p, c_void_p)),
        ("feat_val", c_void_p, (c_void_p, c_char_p)),
        ("val_track", track, (c_void_p,)),
        ("val_cg_db", c_void_p, (c_void_p,)),
        ("val_int", c_int, (c_void_p,)),
        ("mlpg", track, (track, c_void_p)),
        ("utt_wave", wave, (c_void_p,)),
        ("utt_relation", c_void_p, (c_void_p, c_char_p)),
        ("relation_head", c_void_p, (c_void_p,)),
        ("item_next", c_void_p, (c_void_p,)),
        ("item_feat_float", c_float, (c_void_p, c_char_p)),
        ("item_feat_string", c_char_p, (c_void_p, c_char_p)),
        ("ffeature", c_void_p, (c_void_p, c_char_p)),
        ("delete_track", None, (track,)),
        ("delete_utterance", None, (c_void_p,)),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    library.flite_init()
    for needed in ("cmulex", "usenglish"):
        _open(f"flite_{needed}")
    return library


@lru_cache
def _voice(name: str) -> c_void_p:
    _library()
    register = getattr(_open(f"flite_cmu_us_{name}"), f"register_cmu_us_{name}")
    register.restype, register.argtypes = c_void_p, (c_void_p,)
    return c_void_p(register(None))


def _open(name: str) -> ctypes.CDLL:
    folder = os.environ.get("FLITE_LIBRARIES")
    if folder:
        path = next(iter(sorted(Path(folder).glob(f"lib{name}.*"))), None)
    else:
        path = ctypes.util.find_library(name)
    if path is None:
        raise FileNotFoundError(f"flite: lib{name} is not installed; install flite, or set FLITE_LIBRARIES")
    return ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
