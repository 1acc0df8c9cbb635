r"""Evaluate a fine-tuned voice: word error rate compared with flite's, and similarity to flite's voices.

    python -m examples.finetune_dia.evaluation --dia tuned/dia --codec tts_core/voice/codec \
        --voice awb --others slt rms

For a voice trained on recordings by flite. The texts are the committed sentences of examples/train_voice,
which are in no training data. Needs flite and pocketsphinx.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from examples.train_voice.evaluation import PATIENCE, write_wav
from examples.train_voice.flite import SAMPLE_RATE, speak
from examples.train_voice.listening import TurnScore, interval, score, word_error_rate
from examples.train_voice.parameters import framed
from examples.train_voice.similarity import Voiceprint, median_pitch, similarities, voiceprint
from examples.train_voice.synthesis import reseed
from tts_core.judges.sentences import sentences as read_sentences
from tts_core.voice.embedded import CODEC


def read_aloud(voice: str, sentences: Sequence[str]) -> list[np.ndarray]:
    """Let flite read the sentences. (L,) float32 at 16 kHz each."""
    reseed(1)
    rng = np.random.default_rng(1)
    return [framed(speak(words, voice), rng)[0].astype(np.float32) / 32768 for words in sentences]


def judged(name: str, sentences: Sequence[str], said: Sequence[np.ndarray]) -> float:
    """Print the word error rate with its interval, and return it."""
    scores: list[list[TurnScore]] = [
        score([words], samples) for words, samples in zip(sentences, said, strict=True)
    ]
    low, high = interval(scores)
    rate = word_error_rate([turn for turns in scores for turn in turns])
    print(f"{name:10} WER {rate:5.1f} %  ({low:.1f} to {high:.1f})", flush=True)
    return rate


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dia", required=True)
    parser.add_argument("--codec", default=CODEC)
    parser.add_argument("--voice", default="awb", help="flite's voice of the training data")
    parser.add_argument("--others", nargs="+", default=["slt", "rms"])
    parser.add_argument("--count", type=int, default=100, help="number of sentences")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--temperature", type=float, help="[the model's own]")
    parser.add_argument("--out", type=Path, help="folder for a report and some WAV files")
    given = parser.parse_args()
    import torch_ref

    sentences = read_sentences()[: given.count]
    sources = {voice: read_aloud(voice, sentences) for voice in (given.voice, *given.others)}
    pipeline = torch_ref.DiaPipeline.load(given.dia, codec=given.codec, dtype="float32")
    hop = pipeline.codec_config.hop_length
    results = pipeline.generate_batch(
        [f"[S1] {words}" for words in sentences],
        seed=[given.seed + n for n in range(len(sentences))],
        temperature=given.temperature,
        max_frames=[
            min(int(PATIENCE * len(samples) / hop), pipeline.config.max_frames)
            for samples in sources[given.voice]
        ],
    )
    said = [result.audio for result in results]
    figures = {
        "flite": judged(f"flite {given.voice}", sentences, sources[given.voice]),
        "tuned": judged("tuned", sentences, said),
        "unfinished": sum(result.finish_reason != "stop" for result in results),
    }
    ours: list[Voiceprint] = [voiceprint(samples) for samples in said]
    print(f"cut off: {figures['unfinished']} of {len(said)}; pitch {median_pitch(ours):.0f} Hz")
    for voice, samples in sources.items():
        prints = [voiceprint(wave) for wave in samples]
        figures[f"cosine {voice}"], figures[f"pitch {voice}"] = (
            similarities(ours, prints),
            median_pitch(prints),
        )
        print(
            f"{voice}: cosine {figures[f'cosine {voice}']:.3f}, pitch {figures[f'pitch {voice}']:.0f} Hz",
            flush=True,
        )
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / "report.json").write_text(json.dumps(figures, indent=2) + "\n")
        write_wav(given.out / "tuned.wav", np.concatenate(said[:4]), SAMPLE_RATE)
        write_wav(given.out / "source.wav", np.concatenate(sources[given.voice][:4]), SAMPLE_RATE)


if __name__ == "__main__":
    main()
