"""MetaVoice's layouts of codes: interleaved for the first stage, rows below the text for the second.

Source: metavoiceio/metavoice-src, July 2024 (Apache-2.0), its flattened and tilted adapters.
Differs from upstream: codebooks of unequal lengths are cut without a warning; `by_position` is ours.
"""

from __future__ import annotations

import numpy as np

from tts_core.metavoice.config import CODEBOOK_SIZE, END_OF_AUDIO, FIRST_STAGE_BOOKS

PADDING = CODEBOOK_SIZE  # second stage: id at positions without a code


def interleave(text: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Build the first stage's sequence: text ids, then for each frame a code of book 0 and one of book 1.

    text: (S,).  codes: (Q, F); only the first two rows are used.  → (S + 2F,) int32.
    """
    books = codes[:FIRST_STAGE_BOOKS] + CODEBOOK_SIZE * np.arange(FIRST_STAGE_BOOKS)[:, None]
    return np.concatenate([text, books.T.ravel()]).astype(np.int32)


def flattened(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Split a first-stage sequence into text ids without the last, and codes. (N,) → (S - 1,), (2, F) int32.

    Ids are sorted by value, not by position: a missing id shifts the pairing after it. The longer book is
    cut to the shorter one.
    """
    books = [ids[(ids // CODEBOOK_SIZE) == book] - book * CODEBOOK_SIZE for book in range(FIRST_STAGE_BOOKS)]
    frames = min(map(len, books))
    codes = np.stack([book[:frames] for book in books])
    return ids[ids > END_OF_AUDIO][:-1].astype(np.int32), codes.astype(np.int32)


def second_stage_rows(text: np.ndarray, codes: np.ndarray, window: int) -> np.ndarray:
    """Build the second stage's input: text and book 0, with book 1 below it, padded or cut to the window.

    text: (S,) ids with the second stage's offset, end of text last.  codes: (2, F).  → (2, window) int32.
    """
    rows = np.full((FIRST_STAGE_BOOKS, max(window, len(text) + codes.shape[1])), PADDING, np.int32)
    rows[0, : len(text)] = text
    rows[:, len(text) : len(text) + codes.shape[1]] = codes[:FIRST_STAGE_BOOKS]
    return rows[:, :window]


def by_position(rows: np.ndarray, text_tokens: int, frames: int) -> np.ndarray:
    """Read codes from the second stage's rows by their positions after the text. (Q, W) → (Q, F) int32.

    frames: the number given to it; those cut off by the window are missing. No row may have padding there.
    """
    codes = np.asarray(rows)[:, text_tokens : text_tokens + frames].astype(np.int32)
    assert (codes < CODEBOOK_SIZE).all(), "padding among codes: predicted ids must be codes at these places"
    return codes


def most_frames(text_tokens: int, first_window: int, second_window: int) -> int:
    """Count the frames that fit in both stages after a text of `text_tokens` ids, end of text included.

    The second stage's sequence ends with one position of padding. 0 or less: the text itself does not fit.
    """
    return min((first_window - text_tokens) // FIRST_STAGE_BOOKS, second_window - 1 - text_tokens)
