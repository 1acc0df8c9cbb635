"""Recordings for the documented run: sentences read by a voice of flite.

    python -m examples.finetune_dia.flite_data --voice awb --count 400 --out work/awb

The sentences exclude those that `examples/train_voice` evaluates on.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from examples.train_voice import text
from examples.train_voice.flite import SAMPLE_RATE, speak
from examples.train_voice.parameters import framed
from examples.train_voice.synthesis import reseed
from tts_core.audio.files import write_audio


def make(folder: Path, voice: str, count: int, seed: int) -> float:
    """Write NAME.wav and NAME.txt files. Returns the seconds of speech."""
    folder.mkdir(parents=True, exist_ok=True)
    text.write(folder / "sentences.list", count, seed)
    lines = (folder / "sentences.list").read_text().splitlines()
    reseed(seed)
    rng, seconds = np.random.default_rng(seed), 0.0
    for index, line in enumerate(lines):
        samples = framed(speak(line, voice), rng)[0].astype(np.float32) / 32768
        write_audio(folder / f"{index:05}.wav", samples, SAMPLE_RATE)
        (folder / f"{index:05}.txt").write_text(line + "\n")
        seconds += len(samples) / SAMPLE_RATE
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--voice", default="awb")
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    seconds = make(given.out, given.voice, given.count, given.seed)
    print(f"{given.out}: {given.count} recordings, {seconds / 60:.1f} minutes")


if __name__ == "__main__":
    main()
