"""Measure the words that a recognizer gets wrong at other speeds: our time-stretching beside Rubber Band's.

    python benchmarks/stretch_quality.py [--sentences 24] [--speeds 0.75 1 1.25 1.5]

pocketsphinx hears the evaluation sentences read by flite, at each speed. Its models know usual speech, so
errors rise with the distance from speed 1 for any method.

    WER     percent of wrong words, with its 95 % interval over sentences

Needs flite, pocketsphinx and pedalboard (Rubber Band); without them it prints so and measures nothing.
"""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Callable

import numpy as np

from examples.train_voice.flite import SAMPLE_RATE, speak
from examples.train_voice.listening import interval, score, word_error_rate
from examples.train_voice.text import EVALUATION
from tts_core.audio.stretch import stretch

VOICES = ("slt", "rms")


def missing() -> str | None:
    """Describe a missing requirement in one line; None if nothing is missing."""
    for name in ("pocketsphinx", "pedalboard"):
        if importlib.util.find_spec(name) is None:
            return f"{name} is not installed: pip install {name}"
    try:
        speak("a", VOICES[0])
    except (OSError, ValueError) as error:
        return f"{error}"
    return None


def library(samples: np.ndarray, speed: float) -> np.ndarray:
    """Rubber Band, as pedalboard contains it."""
    from pedalboard import time_stretch  # pyright: ignore[reportAttributeAccessIssue]

    return time_stretch(samples[None], SAMPLE_RATE, speed)[0]


def ours(samples: np.ndarray, speed: float) -> np.ndarray:
    return stretch(samples, SAMPLE_RATE, speed)


METHODS: dict[str, Callable[[np.ndarray, float], np.ndarray]] = {"WSOLA": ours, "Rubber Band": library}


def main() -> None:
    parser = argparse.ArgumentParser(description="word error rates of speech at other speeds")
    parser.add_argument("--sentences", type=int, default=24)
    parser.add_argument("--speeds", type=float, nargs="+", default=[0.75, 1.0, 1.25, 1.5])
    given = parser.parse_args()
    if fault := missing():
        print(f"nothing measured: {fault}")
        return
    texts = (EVALUATION / "sentences.txt").read_text().splitlines()[: given.sentences]
    spoken = [speak(text, VOICES[place % 2]).samples for place, text in enumerate(texts)]
    waves = [samples.astype(np.float32) / 32768 for samples in spoken]
    for speed in given.speeds:
        for name, change in METHODS.items():
            scores = [score([text], change(wave, speed)) for text, wave in zip(texts, waves, strict=True)]
            rate = word_error_rate([turn for turns in scores for turn in turns])
            low, high = interval(scores)
            print(f"speed {speed:g}, {name}: WER {rate:.1f} % ({low:.1f} to {high:.1f})", flush=True)


if __name__ == "__main__":
    main()
