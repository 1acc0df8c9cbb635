"""Stage 8, evaluation: word error rates of flite, of the codec's round trip and of the language model.

    python -m examples.train_voice.evaluation --voice work/voice --out work/evaluation --workers 16

The texts are committed and in no training data: 100 sentences in both voices, and 40 dialogues. --codec-only
leaves out the language model. The report is printed and written as JSON, together with some WAV files. Needs
flite and pocketsphinx.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import wave
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from examples.train_voice.flite import speak
from examples.train_voice.listening import TurnScore, interval, score, word_error_rate
from examples.train_voice.parameters import framed
from examples.train_voice.settings import DEFAULT, Synthesis, read_settings
from examples.train_voice.synthesis import reseed
from examples.train_voice.text import EVALUATION
from tts_core.judges.sentences import sentences as read_sentences

BATCH = 70  # texts generated at once
PATIENCE = 3.0  # times the source's length: a text is cut off
LATE = 1.5  # times the source's length: an end after this counts as late


@dataclass(frozen=True)
class Item:
    """Text to be spoken. group: "slt", "rms" or "dialogues"."""

    group: str
    text: str

    @property
    def turns(self) -> list[tuple[int, str]]:
        """(voice, words) of each turn."""
        found = re.findall(r"\[S(\d)\]\s*([^\[]+)", self.text)
        return [(int(speaker) - 1, words.strip()) for speaker, words in found]


def items(voices: Sequence[str], few: int | None) -> list[Item]:
    """Read all evaluation texts, or the first `few` of each kind."""
    sentences = read_sentences()[:few]
    dialogues = (EVALUATION / "dialogues.txt").read_text().splitlines()[:few]
    single = [
        Item(name, f"[S{tag}] {words}") for tag, name in enumerate(voices, start=1) for words in sentences
    ]
    return [*single, *(Item("dialogues", text) for text in dialogues)]


def source(item: Item, synthesis: Synthesis) -> np.ndarray:
    """Let flite read a text as in training. Returns (L,) float32."""
    reseed(1)
    rng = np.random.default_rng(1)
    said = [framed(speak(words, synthesis.voices[voice]), rng).samples for voice, words in item.turns]
    return np.concatenate(said).astype(np.float32) / 32768


def judge(job: tuple[Item, np.ndarray]) -> list[TurnScore]:
    """Score an item's turns in samples."""
    item, samples = job
    return score([words for _, words in item.turns], samples)


def round_trips(folder: Path, sources: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Encode and decode every waveform."""
    from torch_ref.loading import open_networks

    dac = open_networks(folder, kinds=["dac"], dtype="float32")["dac"]
    return [dac.decode(dac.encode(samples[None])).cpu().numpy()[0] for samples in sources]


def spoken(
    voice: Path, chosen: Sequence[Item], sources: Sequence[np.ndarray], seed: int
) -> list[tuple[np.ndarray, bool]]:
    """Speak with the language model's own settings, one sample per text. Returns samples and "ended"."""
    import torch_ref

    pipeline = torch_ref.DiaPipeline.load(voice / "dia", codec=voice / "codec", dtype="float32")
    hop = pipeline.codec_config.hop_length
    said = []
    for begin in range(0, len(chosen), BATCH):
        batch = chosen[begin : begin + BATCH]
        frames = [
            min(int(PATIENCE * len(samples) / hop), pipeline.config.max_frames)
            for samples in sources[begin : begin + BATCH]
        ]
        seeds = [seed + begin + index for index in range(len(batch))]
        results = pipeline.generate_batch([item.text for item in batch], max_frames=frames, seed=seeds)
        said += [(result.audio, result.finish_reason == "stop") for result in results]
    return said


def report(name: str, chosen: Sequence[Item], scores: Sequence[list[TurnScore]]) -> dict[str, float]:
    """Print and return the word error rate of every group."""
    rates = {}
    for group in dict.fromkeys(item.group for item in chosen):
        own = [turns for item, turns in zip(chosen, scores, strict=True) if item.group == group]
        low, high = interval(own)
        rates[group] = word_error_rate([turn for turns in own for turn in turns])
        print(f"{name:15} {group:10} WER {rates[group]:5.1f} %  ({low:.1f} to {high:.1f})", flush=True)
    return rates


def conduct(
    chosen: Sequence[Item],
    scores: Sequence[list[TurnScore]],
    wanted: Sequence[list[TurnScore]],
    said: Sequence[tuple[np.ndarray, bool]],
    sources: Sequence[np.ndarray],
) -> dict[str, float]:
    """Count lost turns, turns in the wrong voice and late ends; print and return the counts."""
    pitches = [
        [
            turn.pitch
            for item, turns in zip(chosen, wanted, strict=True)
            if item.group == group
            for turn in turns
        ]
        for group in ("slt", "rms")
    ]
    threshold = float(np.sqrt(np.median(pitches[0]) * np.median(pitches[1])))
    turns = [
        (voice, turn)
        for item, turns in zip(chosen, scores, strict=True)
        for (voice, _), turn in zip(item.turns, turns, strict=True)
    ]
    lost = sum(2 * turn.errors >= turn.words for _, turn in turns)
    wrong = sum((turn.pitch < threshold) == (voice == 0) for voice, turn in turns if turn.pitch)
    late = sum(
        not stopped or len(samples) > LATE * len(source)
        for (samples, stopped), source in zip(said, sources, strict=True)
    )
    print(
        f"turns with half of their words wrong: {lost} of {len(turns)}; turns in the wrong voice (threshold "
        f"{threshold:.0f} Hz): {wrong}; ends after {LATE} times the source, or never: {late} of {len(said)}",
        flush=True,
    )
    return {"turns": len(turns), "lost": lost, "wrong_voice": wrong, "threshold_hz": threshold, "late": late}


def write_wav(path: Path, samples: np.ndarray, sample_rate: int) -> None:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(sample_rate)
        file.writeframes((np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--settings", type=Path, default=DEFAULT)
    parser.add_argument("--voice", type=Path, required=True, help="folder written by export")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--few", type=int, help="number of texts of each kind")
    parser.add_argument("--codec-only", action="store_true")
    given = parser.parse_args()
    settings = read_settings(given.settings)
    given.out.mkdir(parents=True, exist_ok=True)
    chosen, figures = items(settings.synthesis.voices, given.few), {}
    with get_context("spawn").Pool(given.workers) as pool:
        sources = pool.map(partial(source, synthesis=settings.synthesis), chosen)
        waiting = pool.map_async(judge, list(zip(chosen, sources, strict=True)), chunksize=2)
        coded = round_trips(given.voice / "codec", sources)
        coded_scores = pool.map(judge, list(zip(chosen, coded, strict=True)), chunksize=2)
        wanted = waiting.get()
        figures["flite"] = report("flite", chosen, wanted)
        figures["codec"] = report("codec", chosen, coded_scores)
        kinds = {"source": sources, "codec": coded}
        if not given.codec_only:
            said = spoken(given.voice, chosen, sources, settings.seed)
            kinds["model"] = [samples for samples, _ in said]
            scores = pool.map(judge, list(zip(chosen, kinds["model"], strict=True)), chunksize=2)
            figures["language model"] = report("language model", chosen, scores)
            figures["conduct"] = conduct(chosen, scores, wanted, said, sources)
    for kind, samples in kinds.items():
        for group in dict.fromkeys(item.group for item in chosen):
            own = [own_wave for item, own_wave in zip(chosen, samples, strict=True) if item.group == group][
                :4
            ]
            write_wav(given.out / f"{group}-{kind}.wav", np.concatenate(own), settings.codec.sample_rate)
    (given.out / "report.json").write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
