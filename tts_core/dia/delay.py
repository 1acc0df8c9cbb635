"""Dia's delay pattern: codebook c lags `delays[c]` rows behind the first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def apply_delay(codes: np.ndarray, delays: Sequence[int], bos: int, pad: int) -> np.ndarray:
    """Shift each codebook by its delay. (Q, T) → (Q, T + max(delays)) int32.

    `bos` stands before a codebook's first code, `pad` after its last.
    Raises ValueError if len(delays) != Q.
    Source: nari-labs/dia audio.py@876125e.
    """
    _check(codes, delays)
    frames = codes.shape[1]
    rows = np.arange(frames + max(delays))
    source = rows[None, :] - np.asarray(delays)[:, None]
    taken = (
        np.take_along_axis(codes, np.clip(source, 0, max(frames - 1, 0)), axis=1)
        if frames
        else np.zeros_like(source)
    )
    return np.where(source < 0, bos, np.where(source >= frames, pad, taken)).astype(np.int32)


def revert_delay(codes: np.ndarray, delays: Sequence[int]) -> np.ndarray:
    """Undo the per-codebook delay, dropping the ragged tail. (Q, T + max(delays)) → (Q, T) int32.

    Raises ValueError if len(delays) != Q or codes are shorter than the longest delay.
    Source: nari-labs/dia audio.py@876125e, without its clamp to T-1.
    """
    _check(codes, delays)
    frames = codes.shape[1] - max(delays)
    if frames < 0:
        raise ValueError(f"delay: {codes.shape[1]} rows are fewer than the longest delay {max(delays)}")
    return np.stack([row[d : d + frames] for row, d in zip(codes, delays, strict=True)]).astype(np.int32)


def _check(codes: np.ndarray, delays: Sequence[int]) -> None:
    if codes.ndim != 2 or len(delays) != codes.shape[0]:
        raise ValueError(
            f"delay: {len(delays)} delays for codes of shape {codes.shape}; expected (Q, T) with Q delays"
        )
