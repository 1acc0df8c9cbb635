"""Dia reads bytes: a token is a UTF-8 byte, and the tags [S1] and [S2] are the bytes 1 and 2."""

from __future__ import annotations

import numpy as np

SPEAKER_TAGS = {b"[S1]": b"\x01", b"[S2]": b"\x02"}


def tokenize(text: str) -> np.ndarray:
    """Text → (S,) int32 byte ids, [S1] and [S2] replaced, nothing padded, cut or normalised.

    Source: nari-labs/dia model.py@876125e, without its cut and its padding to 1,024.
    """
    data = text.encode("utf-8")
    for tag, byte in SPEAKER_TAGS.items():
        data = data.replace(tag, byte)
    return np.frombuffer(data, dtype=np.uint8).astype(np.int32)
