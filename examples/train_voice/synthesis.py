"""Stage 2, synthesis: every sentence in one of flite's two voices, in turn.

    python -m examples.train_voice.synthesis --text work/text.txt --out work/speech --workers 16

Shards that are there already are kept, so a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import time
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from examples.train_voice.flite import SAMPLE_RATE, speak, trimmed
from examples.train_voice.settings import DEFAULT, Synthesis, read_settings
from examples.train_voice.speech import Shard, shard_names, write_shard


def leveled(samples: np.ndarray, level: float) -> np.ndarray:
    """The same speech with an RMS of `level`, less where it would clip. int16."""
    loudness = np.sqrt(np.mean(samples.astype(np.float64) ** 2)) + 1e-9
    gain = min(level / loudness, 32000 / max(1, np.abs(samples).max()))
    return np.round(samples * gain).astype(np.int16)


def utterance(text: str, voice: str, synthesis: Synthesis) -> np.ndarray:
    """One sentence as it is trained on; empty where flite says nothing."""
    samples = trimmed(speak(text, voice), synthesis.lead, synthesis.tail)
    return leveled(samples, synthesis.level) if len(samples) else samples


def shard(texts: list[str], synthesis: Synthesis, seed: int) -> Shard:
    """Sentences in the voices by turns."""
    ctypes.CDLL(None).srand(seed)  # flite draws its noise from the C library
    said, voices, pieces = [], [], []
    for place, text in enumerate(texts):
        voice = place % len(synthesis.voices)
        samples = utterance(text, synthesis.voices[voice], synthesis)
        if SAMPLE_RATE // 4 < len(samples) < SAMPLE_RATE * 12:
            said.append(text)
            voices.append(voice)
            pieces.append(samples)
    return Shard(said, voices, [len(piece) for piece in pieces], np.concatenate(pieces))


def _make(job: tuple[str, list[str], int], folder: Path, synthesis: Synthesis) -> int:
    name, texts, seed = job
    made = shard(texts, synthesis, seed)
    write_shard(folder, name, made)
    return len(made.array)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--settings", type=Path, default=DEFAULT)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    given = parser.parse_args()
    settings = read_settings(given.settings)
    lines, size = given.text.read_text().splitlines(), settings.synthesis.utterances_per_shard
    given.out.mkdir(parents=True, exist_ok=True)
    done = set(shard_names(given.out))
    jobs = [(f"{i // size:05d}", lines[i : i + size], settings.seed + i) for i in range(0, len(lines), size)]
    jobs = [job for job in jobs if job[0] not in done]
    begun, hours = time.monotonic(), 0.0
    with get_context("spawn").Pool(given.workers) as pool:
        make = partial(_make, folder=given.out, synthesis=settings.synthesis)
        for count, samples in enumerate(pool.imap_unordered(make, jobs), start=1):
            hours += samples / SAMPLE_RATE / 3600
            if count % 100 == 0 or count == len(jobs):
                print(
                    f"synthesis: {count} of {len(jobs)} shards, {hours:.1f} h in "
                    f"{time.monotonic() - begun:.0f} s",
                    flush=True,
                )


if __name__ == "__main__":
    main()
