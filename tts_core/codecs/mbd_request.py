"""What multi-band diffusion is asked to decode: checked before any weights are loaded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tts_core.codecs.mbd import MbdConfig
from tts_core.errors import UsageError


def nearest_frames(length: int, frames: int) -> np.ndarray:
    """For each of `length` steps the frame that conditions it, floor(i frames / length) in float32. int64.

    Raises ValueError for more than two frames a step, as upstream does.
    """
    if not 0 < frames <= 2 * length:
        raise ValueError(f"mbd: {frames} frames of latents for {length} steps of the deepest level")
    scale = np.float32(frames) / np.float32(length)
    return np.minimum((np.arange(length, dtype=np.float32) * scale).astype(np.int64), frames - 1)


def check_items(
    config: MbdConfig,
    latents: Sequence[tuple[int, ...]],
    references: Sequence[tuple[int, ...]],
    sources: int,
) -> None:
    """Raise UsageError unless each item has latents (C, F), a wave (L,) of fitting length, and noise."""
    if not 0 < len(latents) == len(references) == sources:
        raise UsageError(
            f"mbd: {len(latents)} latents, {len(references)} waves and {sources} sources of noise: give one "
            "of each for every item"
        )
    for latent, wave in zip(latents, references, strict=True):
        if len(latent) != 2 or latent[0] != config.codec_dim or len(wave) != 1 or wave[0] < 2:
            raise UsageError(
                f"mbd: latents {latent} with a wave {wave}: expected ({config.codec_dim}, frames) and "
                "(samples,)"
            )
        for band in config.bands:
            steps = -(-wave[0] // band.unet.stride**band.unet.depth)
            if not 0 < latent[1] <= 2 * steps:
                raise UsageError(f"mbd: {latent[1]} frames of latents do not belong to {wave[0]} samples")
