"""Stage 2, synthesis: speak every sentence with a voice of flite, and compute the features of its frames.

    python -m examples.train_voice.synthesis --text work/text.txt --out work/speech --workers 16

Existing shards are kept, so an interrupted run continues.
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

from examples.train_voice.flite import SAMPLE_RATE, speak
from examples.train_voice.parameters import HOP, framed
from examples.train_voice.settings import DEFAULT, Synthesis, read_settings
from examples.train_voice.speech import Shard, shard_names, write_shard

SHORTEST, LONGEST = 8, 400  # frames of an utterance


def reseed(seed: int) -> None:
    """Seed the C library's random numbers, from which flite draws its noise."""
    ctypes.CDLL(None).srand(seed)


def voice_of(index: int, synthesis: Synthesis) -> int:
    """Choose the voice: speakers alternate; at intervals, a voice only for the codec."""
    heard = index % synthesis.heard_every == synthesis.heard_every - 1
    return len(synthesis.voices) if heard and synthesis.heard else index % len(synthesis.voices)


def shard(texts: list[str], synthesis: Synthesis, seed: int) -> Shard:
    """Speak sentences, each in one voice. Sentences whose speech is too short or too long are left out."""
    reseed(seed)
    rng = np.random.default_rng(seed)
    names = [*synthesis.voices, *synthesis.heard]
    said, voices, pieces = [], [], []
    for index, text in enumerate(texts):
        voice = voice_of(index, synthesis)
        frames = framed(speak(text, names[voice]), rng)
        if SHORTEST <= len(frames.features) <= LONGEST:
            said.append(text)
            voices.append(voice)
            pieces.append(frames)
    arrays = {
        "samples": np.concatenate([frames.samples.reshape(-1, HOP) for frames in pieces]),
        "features": np.concatenate([frames.features for frames in pieces]).astype(np.float16),
        "places": np.concatenate([frames.places for frames in pieces]).astype(np.float16),
        "phones": np.concatenate([frames.phones for frames in pieces]).astype(np.uint8),
    }
    return Shard(said, voices, [len(frames.features) for frames in pieces], arrays)


def _make(job: tuple[str, list[str], int], folder: Path, synthesis: Synthesis) -> int:
    name, texts, seed = job
    made = shard(texts, synthesis, seed)
    write_shard(folder, name, made)
    return sum(made.lengths)


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
        for count, frames in enumerate(pool.imap_unordered(make, jobs), start=1):
            hours += frames * HOP / SAMPLE_RATE / 3600
            if count % 50 == 0 or count == len(jobs):
                print(
                    f"synthesis: {count} of {len(jobs)} shards, {hours:.1f} h in "
                    f"{time.monotonic() - begun:.0f} s",
                    flush=True,
                )


if __name__ == "__main__":
    main()
