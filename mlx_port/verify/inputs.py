"""What both sides are fed: made from a seed, in NumPy."""

from __future__ import annotations

import numpy as np

from tts_core.dac import DacConfig
from tts_core.delay import apply_delay
from tts_core.dia import DiaConfig
from tts_core.errors import UsageError
from tts_core.stages import State
from tts_core.tokenizer import tokenize

TEXT = "[S1] The quick brown fox jumps over the lazy dog. [S2] Does it? (laughs) It does."


def signal(config: DacConfig, seconds: float, seed: int) -> np.ndarray:
    """Whole frames of a voiced, gliding sound with syllables and noise. (1, L) float32 in [-1, 1]."""
    rng = np.random.default_rng(seed)
    frames = max(2, round(seconds * config.frame_rate))
    time = np.arange(frames * config.hop_length) / config.sample_rate
    pitch = 120 + 40 * np.sin(2 * np.pi * 3 * time + rng.uniform(0, 6))
    phase = 2 * np.pi * np.cumsum(pitch) / config.sample_rate
    voiced = sum(np.sin(k * phase + rng.uniform(0, 6)) / k for k in range(1, 21))
    syllables = 0.55 - 0.45 * np.cos(2 * np.pi * 4 * time)
    sound = 0.3 * syllables * voiced + 0.02 * rng.standard_normal(len(time))
    return np.clip(sound, -1, 1).astype(np.float32)[None]


def encode_state(config: DacConfig, samples: np.ndarray) -> State:
    """For `encode_stages`: no codes yet."""
    return {"samples": samples, "codes": np.zeros((1, 0, samples.shape[1] // config.hop_length), np.int32)}


def check_rows(config: DiaConfig, rows: int) -> None:
    """Raises UsageError where the model has no room for `rows` of the grid."""
    room = config.decoder_config.max_position_embeddings
    if not 2 <= rows <= room:
        raise UsageError(f"--rows: {rows} is outside 2 .. {room}, the rows that this model holds")


def dia_state(config: DiaConfig, rows: int, codes: np.ndarray | None, seed: int) -> State:
    """For `dia_stages`: a text, and grid rows with guidance, the unconditional one second.

    codes: (1, Q, T) to say, repeated as often as needed; None, or codes of another model, draws them.
    """
    channels, entries = config.decoder_config.num_channels, config.eos_token_id
    if codes is None or codes.shape[1] != channels or codes.max() >= entries:
        codes = np.random.default_rng(seed).integers(0, entries, (1, channels, rows), dtype=np.int32)
    said = codes[0][:, np.arange(rows) % codes.shape[2]]
    delayed = apply_delay(said, config.delay_pattern, config.bos_token_id, config.pad_token_id)
    grid = np.concatenate((np.full((1, channels), config.bos_token_id, np.int32), delayed.T))[:rows]
    ids = tokenize(TEXT)[: config.max_text_bytes] % config.encoder_config.vocab_size
    return {
        "ids": ids[None].astype(np.int32),
        "zero": np.zeros((1, 1), np.int32),
        "tokens": np.stack((grid, grid)).astype(np.int32),
    }
