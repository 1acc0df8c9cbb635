"""Count the texts of the embedded voice whose codes depend on the texts that they are spoken with.

    python benchmarks/exact_batches.py [--side torch] [--count 1000] [--frames 24]
    python benchmarks/exact_batches.py --model mars5 [--side torch] [--count 64] [--frames 8] [--cost]

Each text, with a seed of its own, is spoken alone, in batches of 2, 4, 8 and 16, and in a running batch of 8
places that texts join at random steps. The first two texts differed once, from frames 14 and 37.

With --model: texts of a small random network of another model (benchmarks/lib/exact_models.py), in its slots:
how many have other codes than by themselves, and how many other keys in any bit, with the steps as they are
and with plain ones. --cost times steps of 8 texts and of one by turns, as they are and plain, in processor
time.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.lib.exact_models import KINDS, alternating, built, plain
from benchmarks.lib.exact_models import compared as compared_small
from benchmarks.lib.random_networks import PACKAGES
from benchmarks.lib.timing import arguments, machine
from tts_core.dia.options import DiaOptions

KNOWN = (
    (1120041949910592895, "[S1] Warm child wants green train in?"),
    (1717560359478174870, "[S2] First window likes that story after?"),
)
WORDS = Path(__file__).parent / "texts" / "short.txt"
GROUP, BATCHES, PLACES = 16, (2, 4, 8, 16), 8
CHANCE = 0.2  # that a waiting text joins at a step

Text = tuple[int, str]  # seed and words


def text(number: int) -> Text:
    """Make a text of 2 to 7 words, and its seed."""
    if number < len(KNOWN):
        return KNOWN[number]
    random = np.random.default_rng(number)
    words = sorted({word.strip(".,!?'").lower() for word in WORDS.read_text("utf-8").split()})
    said = " ".join(random.choice(words, random.integers(2, 8)))
    return int(random.integers(2**63)), f"[S{1 + number % 2}] {said.capitalize()}{random.choice(list('.!?'))}"


def together(pipeline: Any, texts: Sequence[Text], frames: int) -> list[np.ndarray]:
    """Codes of texts that begin together."""
    seeds = [seed for seed, _ in texts]
    return pipeline.generate_codes([said for _, said in texts], seed=seeds, max_frames=frames)


def joining(pipeline: Any, texts: Sequence[Text], frames: int, seed: int) -> list[np.ndarray]:
    """Codes of texts that join others in progress, at random steps and in random order."""
    random = np.random.default_rng(seed)
    options = DiaOptions(seed=[number for number, _ in texts], max_frames=frames)
    said = [words for _, words in texts]
    asked = pipeline.engine.facts.requests(said, options, None, exactly=True)
    session = pipeline.opened(PLACES, None, streamed=False, has_sound=False)
    waiting, items = [int(first) for first in random.permutation(len(texts))], dict[int, int]()
    codes = dict[int, np.ndarray]()
    while waiting or session.running:
        if waiting and session.running < PLACES and (not session.running or random.random() < CHANCE):
            item = waiting.pop()
            items[session.join(asked[item])] = item
        for event in session.step():
            codes[items[event.key]] = event.result.codes
    session.close()
    return [codes[item] for item in range(len(texts))]


def difference(first: np.ndarray, other: np.ndarray) -> int | None:
    """First frame that differs, None if none does. (Q, T) each."""
    shared = min(first.shape[1], other.shape[1])
    [places] = np.nonzero((first[:, :shared] != other[:, :shared]).any(axis=0))
    if len(places):
        return int(places[0])
    return None if first.shape == other.shape else shared


def compared(pipeline: Any, first: int, count: int, frames: int) -> dict[str, dict[int, int]]:
    """Speak a group in every way; frames where a text differs from itself alone, by way and text."""
    texts = [text(number) for number in range(first, first + count)]
    alone = [together(pipeline, [text], frames)[0] for text in texts]
    found = {"running": joining(pipeline, texts, frames, first)}
    for size in BATCHES:
        parts = [texts[start : start + size] for start in range(0, count, size)]
        found[f"batches of {size}"] = [codes for part in parts for codes in together(pipeline, part, frames)]
    return {
        way: {
            first + item: index
            for item, (text, other) in enumerate(zip(alone, codes, strict=True))
            if (index := difference(text, other)) is not None
        }
        for way, codes in found.items()
    }


def counted(given: argparse.Namespace) -> None:
    """Count the texts of a model that differ, exact and plain."""
    numbers = range(given.count)
    print("| | steps | texts | other codes | other keys |\n|---|---|---|---|---|")
    for name, way in (("as they are", nullcontext()), ("plain", plain(given.model, given.side))):
        with way:
            found = compared_small(
                given.model, given.side, built(given.model, given.side), numbers, given.frames
            )
        for size, (codes, keys) in found.items():
            print(f"| {given.model}, {size} | {name} | {len(numbers)} | {codes} | {keys} |", flush=True)


def cost(given: argparse.Namespace) -> None:
    """Time steps of a model, exact and plain."""
    for texts in (8, 1):
        exact, other = (
            1000 * statistics.median(took)
            for took in alternating(given.model, given.side, texts, given.frames)
        )
        print(
            f"{given.model}, {texts} texts: {exact:.1f} ms, plain {other:.1f}: {exact / other:.2f}",
            flush=True,
        )


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--side", choices=PACKAGES, default="torch")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--frames", type=int, default=24, help="at most, of a text")
    parser.add_argument("--model", choices=KINDS)
    parser.add_argument("--cost", action="store_true")
    given = parser.parse_args()
    if given.model:
        print(f"{machine()}; {given.side}", flush=True)
        (cost if given.cost else counted)(given)
        return
    pipeline = importlib.import_module(f"{PACKAGES[given.side]}.api").embedded_voice()
    print(f"{machine()}; {given.side}", flush=True)
    groups, started = [], time.process_time()
    for first in range(0, given.count, GROUP):
        groups.append(compared(pipeline, first, min(GROUP, given.count - first), given.frames))
    spent = time.process_time() - started
    print(f"{given.count} texts of at most {given.frames} frames, {spent:.0f} s of processor time")
    print("| | texts that differ from themselves alone | from frame |\n|---|---|---|")
    for way in groups[0]:
        places = {number: index for group in groups for number, index in group[way].items()}
        listed = ", ".join(f"text {number}: {index}" for number, index in places.items())
        print(f"| {way} | {len(places)} | {listed or '-'} |")


if __name__ == "__main__":
    main()
