"""Evaluate voice prompts: about 3 s of flite with their transcript, continued by the voice.

    python -m examples.train_voice.prompting --dia work/voice/dia --codec work/voice/codec --count 16

Each of flite's two voices is continued under its own tag, and under the other's, which the model learned in
the other voice. Compared with the prompt are the continuation and, as baselines, flite's reading of the same
words in the same voice and in the other. Needs flite and pocketsphinx.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from examples.train_voice.evaluation import PATIENCE, Item, source
from examples.train_voice.listening import score, word_error_rate
from examples.train_voice.settings import DEFAULT, Synthesis, read_settings
from examples.train_voice.similarity import median_pitch, similarities, voiceprint
from tts_core.judges.sentences import sentences as read_sentences
from tts_core.prompt import Prompt
from tts_core.voice.embedded import CODEC, DIA

SHORTEST, LONGEST = 2.5, 3.5  # seconds of a prompt


class Row(NamedTuple):
    """Result of one voice under one tag.

    cosines, pitches: cosine with the prompt and pitch in Hz, of the continuation and both baselines.  length:
    number of continuations whose pitch is nearer to the prompt's voice than to the other.
    """

    voice: str
    tag: str
    cosines: tuple[float, float, float]
    pitches: tuple[float, float, float]
    word_error_rate: float
    length: int
    count: int

    def line(self) -> str:
        ours, same, other = self.cosines
        hertz, same_hertz, other_hertz = self.pitches
        return (
            f"{self.voice} as {self.tag}: cosine {ours:.3f} (same voice {same:.3f}, other {other:.3f}), "
            f"pitch {hertz:.0f} Hz (same {same_hertz:.0f}, other {other_hertz:.0f}), kept {self.length} of "
            f"{self.count}, WER {self.word_error_rate:.1f} %"
        )


def pairs(voice: int, synthesis: Synthesis, count: int) -> list[tuple[str, np.ndarray, str]]:
    """Choose prompts from the evaluation's sentences: (transcript, samples, text to continue with)."""
    sentences = read_sentences()
    found = []
    for words, after in zip(sentences, [*sentences[1:], sentences[0]], strict=True):
        samples = source(Item("", f"[S{voice + 1}] {words}"), synthesis)
        if SHORTEST <= len(samples) / 16000 <= LONGEST:
            found.append((words, samples, after))
        if len(found) == count:
            break
    return found


def compared(
    voice: int,
    tag: int,
    chosen: Sequence[tuple[str, np.ndarray, str]],
    continued: Sequence[np.ndarray],
    synthesis: Synthesis,
) -> Row:
    """Compare continuations with their prompts. continued: samples at 16 kHz, one for each pair."""
    prompts = [voiceprint(samples) for _, samples, _ in chosen]
    ours = [voiceprint(samples) for samples in continued]
    same, other = (
        [voiceprint(source(Item("", f"[S{who + 1}] {after}"), synthesis)) for _, _, after in chosen]
        for who in (voice, 1 - voice)
    )
    scores = [
        turn
        for (_, _, after), samples in zip(chosen, continued, strict=True)
        for turn in score([after], samples)
    ]
    threshold = float(np.sqrt(median_pitch(same) * median_pitch(other)))
    high = median_pitch(same) > threshold
    return Row(
        synthesis.voices[voice],
        f"[S{tag + 1}]",
        (similarities(ours, prompts), similarities(same, prompts), similarities(other, prompts)),
        (median_pitch(ours), median_pitch(same), median_pitch(other)),
        word_error_rate(scores),
        sum(bool(our.pitch) and (our.pitch > threshold) == high for our in ours),
        len(ours),
    )


def continuations(
    pipeline: Any, tag: int, chosen: Sequence[tuple[str, np.ndarray, str]], seed: int
) -> list[np.ndarray]:
    """Continue every prompt, in one batch."""
    prompts = [Prompt.of(audio=samples, text=f"[S{tag + 1}] {words}") for words, samples, _ in chosen]
    longest = int(PATIENCE * LONGEST * pipeline.sample_rate / pipeline.codec_config.hop_length)
    results = pipeline.generate_batch(
        [after for _, _, after in chosen],
        prompts=prompts,
        seed=[seed + n for n in range(len(chosen))],
        max_frames=longest,
    )
    return [result.audio for result in results]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--settings", type=Path, default=DEFAULT)
    parser.add_argument("--dia", default=DIA)
    parser.add_argument("--codec", default=CODEC)
    parser.add_argument("--count", type=int, default=16)
    given = parser.parse_args()
    import torch_ref

    settings = read_settings(given.settings)
    pipeline = torch_ref.load(given.dia, codec=given.codec)
    for voice in (0, 1):
        chosen = pairs(voice, settings.synthesis, given.count)
        for tag in (voice, 1 - voice):
            said = continuations(pipeline, tag, chosen, settings.seed)
            print(compared(voice, tag, chosen, said, settings.synthesis).line(), flush=True)


if __name__ == "__main__":
    main()
