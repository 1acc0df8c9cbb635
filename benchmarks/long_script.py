"""Judge a long script of two speakers in pieces: each continuing its anchors, and each by itself.

    python benchmarks/long_script.py [--scripts 4] [--swapped] [--side mlx] [--dia FOLDER --codec FOLDER]

The scripts, of about a minute each, consist of the evaluation's texts, which are in no training data:
sentences that alternate between both voices ("turns"), and whole dialogues in a row ("dialogues"), where a
speaker may have two turns in a row. A speech recognizer (pocketsphinx) hears every piece by itself. With
--swapped all pieces continue a reference in which flite's voices have each other's tags; a piece by itself
does not have those voices.

    WER         percent of wrong words, with its 95 % interval over pieces
    wrong       turns whose pitch is on the other speaker's side of --threshold
    alike       cosine between a speaker's spectrum in a piece and in that speaker's first piece, mean over
                pieces; in brackets the same with the other speaker's first piece
    spread      standard deviation of a speaker's pitch over pieces, in percent
    ends        pieces that ended by themselves
"""

from __future__ import annotations

import argparse
import importlib
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from examples.train_voice.evaluation import Item, source
from examples.train_voice.listening import TurnScore, interval, pitch, word_error_rate
from examples.train_voice.settings import DEFAULT, read_settings
from examples.train_voice.similarity import Voiceprint, similarity, voiceprint
from examples.train_voice.text import EVALUATION
from tts_core.dia.text import TAGS, turns
from tts_core.judges.words import aligned, hear, words_of
from tts_core.prompt import Prompt
from tts_core.results import SpokenPiece

SENTENCES, DIALOGUES = 20, 10  # per script
SHORTEST = 0.5  # seconds of a speaker in a piece that are needed for a comparison
THRESHOLD = 138.0  # Hz, between the embedded voice's two


class Heard(NamedTuple):
    """Result of listening to one piece: a score for each turn, and each speaker's sound."""

    scores: list[TurnScore]
    speakers: list[int]
    sounds: dict[int, np.ndarray]


def tagged(piece: SpokenPiece) -> str:
    """Return a piece's text with a leading tag, also if it continues its prompt's last turn."""
    if piece.text.startswith(TAGS) or piece.prompt is None:
        return piece.text
    *_, last = turns(str(piece.prompt.one.text))
    return f"[{last.speaker}] {piece.text}"


def swapped_reference() -> Prompt:
    """Build a reference of the evaluation's last two sentences, each in the voice of the other tag."""
    one, other = (EVALUATION / "sentences.txt").read_text().splitlines()[-2:]
    heard = source(Item("", f"[S2] {one} [S1] {other}"), read_settings(DEFAULT).synthesis)
    return Prompt.of(audio=heard, text=f"[S1] {one} [S2] {other}")


def scripts(kind: str, count: int) -> list[str]:
    """Build scripts of a kind. count: the most to return."""
    if kind == "dialogues":
        lines = (EVALUATION / "dialogues.txt").read_text().splitlines()
        return [" ".join(lines[at : at + DIALOGUES]) for at in range(0, len(lines), DIALOGUES)][:count]
    lines = (EVALUATION / "sentences.txt").read_text().splitlines()
    said = [f"[S{1 + place % 2}] {line}" for place, line in enumerate(lines)]
    return [" ".join(said[at : at + SENTENCES]) for at in range(0, len(said), SENTENCES)][:count]


def listen(text: str, samples: np.ndarray) -> Heard:
    """Score turns like the evaluation, and cut each speaker's sound out of the samples (16 kHz)."""
    said, heard = Item("", text).turns, hear(samples)
    wanted = [words_of(words) for _, words in said]
    flat = [word for words in wanted for word in words]
    owner = [turn for turn, words in enumerate(wanted) for _ in words]
    errors, spans, current = [0] * len(said), [[] for _ in said], 0
    for i, j in aligned(flat, [one.word for one in heard]):
        current = current if i is None else owner[i]
        errors[current] += i is None or j is None or flat[i] != heard[j].word
        if i is not None and j is not None:
            spans[current].append(heard[j])
    parts = [samples[span[0].start : span[-1].stop] if span else samples[:0] for span in spans]
    speakers = [speaker for speaker, _ in said]
    sounds = {
        who: np.concatenate([part for part, speaker in zip(parts, speakers, strict=True) if speaker == who])
        for who in set(speakers)
    }
    scores = [
        TurnScore(len(words), wrong, pitch(part) if len(part) else 0.0)
        for words, wrong, part in zip(wanted, errors, parts, strict=True)
    ]
    return Heard(scores, speakers, sounds)


def report(
    name: str, pieces: Sequence[list[Heard]], ended: int, threshold: float, high: int
) -> dict[str, Any]:
    """Print and return the figures. pieces: of each script.  high: the speaker above the threshold."""
    every = [heard for script in pieces for heard in script]
    low, up = interval([heard.scores for heard in every])
    marked = [
        (who, one)
        for heard in every
        for who, one in zip(heard.speakers, heard.scores, strict=True)
        if one.pitch
    ]
    same, other, pitches = [], [], defaultdict(list)
    for script in pieces:
        first: dict[int, Voiceprint] = {}
        for heard in script:
            for who, sound in heard.sounds.items():
                if len(sound) < SHORTEST * 16000:
                    continue
                mark = voiceprint(sound)
                pitches[who].append(mark.pitch)
                if who in first:
                    same.append(similarity(mark, first[who]))
                    if 1 - who in first:
                        other.append(similarity(mark, first[1 - who]))
                else:
                    first[who] = mark
    figures = {
        "pieces": len(every),
        "words": sum(one.words for heard in every for one in heard.scores),
        "wer": word_error_rate([one for heard in every for one in heard.scores]),
        "interval": [low, up],
        "turns": len(marked),
        "wrong": sum((one.pitch < threshold) == (who == high) for who, one in marked),
        "alike": float(np.mean(same)),
        "alike_other": float(np.mean(other)),
        "spread": [100 * float(np.std(found) / np.mean(found)) for _, found in sorted(pitches.items())],
        "ended": ended,
    }
    spread = " and ".join(f"{value:.1f}" for value in figures["spread"])
    rate = f"{figures['wer']:5.1f} % ({low:.1f} to {up:.1f})"
    alike = f"{figures['alike']:.3f} ({figures['alike_other']:.3f})"
    print(f"{name:25} WER {rate}  wrong {figures['wrong']} of {len(marked)}  alike {alike}  ", end="")
    print(f"spread {spread} %  ends {ended} of {len(every)}", flush=True)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scripts", type=int, default=4)
    parser.add_argument("--side", choices=("torch", "mlx"), default="mlx")
    parser.add_argument(
        "--dia", type=Path, help="folder in the published layout, with --codec; runs in PyTorch"
    )
    parser.add_argument("--codec", type=Path)
    parser.add_argument("--threshold", type=float, default=THRESHOLD)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--swapped", action="store_true", help="needs flite")
    parser.add_argument("--kinds", nargs="+", default=["turns", "dialogues"])
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if given.dia:
        voice = importlib.import_module("torch_ref").load(given.dia, codec=given.codec)
    else:
        side = "mlx_port" if given.side == "mlx" else "torch_ref"
        voice = importlib.import_module(f"{side}.api").embedded_voice()
    figures, prompt = {}, swapped_reference() if given.swapped else None
    for kind in given.kinds:
        texts = scripts(kind, given.scripts)
        results = [
            voice.generate(text, prompt=prompt, seed=given.seed + place) for place, text in enumerate(texts)
        ]
        seconds = [result.audio_seconds for result in results]
        rtf = sum(result.processing_time_seconds for result in results) / sum(seconds)
        print(
            f"{kind}: {len(texts)} scripts of {min(seconds):.0f} to {max(seconds):.0f} s, RTF {rtf:.2f}",
            flush=True,
        )
        separate = [
            voice.generate_batch(
                [tagged(piece) for piece in result.pieces],
                seed=[piece.seed for piece in result.pieces],
                max_frames=[piece.max_frames for piece in result.pieces],
            )
            for result in results
        ]
        for name, waves in (
            ("reference" if prompt else "anchors", [list(result.pieces) for result in results]),
            ("each by itself", separate),
        ):
            heard = [
                [listen(tagged(piece), wave.audio) for piece, wave in zip(result.pieces, own, strict=True)]
                for result, own in zip(results, waves, strict=True)
            ]
            ended = sum(wave.finish_reason == "stop" for own in waves for wave in own)
            figures[f"{kind}, {name}"] = report(
                f"{kind}, {name}", heard, ended, given.threshold, int(given.swapped)
            )
    if given.json:
        given.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
