"""Stage 1, text: write sentences that contain every common English word many times.

python -m examples.train_voice.text --out work/text.txt
"""

from __future__ import annotations

import argparse
import hashlib
import random
import re
from pathlib import Path

from examples.train_voice import vocabulary as v
from examples.train_voice.settings import DEFAULT, read_settings
from tts_core.judges.sentences import sentences

EVALUATION = Path(__file__).parent / "evaluation"
LONGEST = 110  # bytes of one sentence
DETERMINERS = [
    "the",
    "the",
    "the",
    "a",
    "my",
    "your",
    "his",
    "her",
    "our",
    "their",
    "this",
    "that",
    "some",
    "every",
    "no",
    "another",
    "each",
]
PRONOUNS = ["I", "you", "we", "they", "he", "she", "it"]
TOWNS = [
    "in",
    "on",
    "at",
    "near",
    "under",
    "behind",
    "with",
    "for",
    "from",
    "to",
    "about",
    "without",
    "after",
    "before",
    "by",
    "into",
    "over",
]

# {n} noun, {ns} nouns, {v} verb, {vs} third person, {ing}, {ed}, {a} adjective, {d} adverb, {np} noun phrase,
# {pp} place, {p} pronoun, {name}, {num}, {w} any word
TEMPLATES = """
{p} {ed} {np} {pp}|{name} {vs} {np}|{np} is {a} and {a}|do you {v} {np}?|can we {v} {pp}?
there are {num} {ns} {pp}|please {v} {np} {d}|{p} will {v} {np} {d}|{name} was {ing} {pp} {d}
{np} and {np} {ed} {d}|why did {name} {v} {np}?|I think {np} should {v} {pp}
if you {v}, {p} can {v} {np}|{d}, {np} {vs} {pp}|what is {np} {ing} {pp}?
it takes {num} {ns} to {v} {np}|no, {np} did not {v} {np}|yes, {p} {ed} {pp}|{np} that {ed} {np} was {a}
when {name} {ed}, {np} {ed} {pp}|{ns} and {ns} are {a}|she has {num} {a} {ns}
he had never {ed} {np} before|we have been {ing} {np} since {name}|who {ed} {np} {pp}?|where is {np}?
how many {ns} do you {v}?|how {a} is {np}?|{np} of {np} is very {a}|let us {v} {np} and {v} {np}
neither {n} nor {n} could {v} {np}|{name} and I {ed} {ns} {pp}|it is too {a} to {v} {d}
that {n} looks {a}|would you {v} {np} for {name}?|the {a} {n} of {name} {ed} {d}|{num} {ns} {ed} {np}
what a {a} {n}!|{v} the {n}!|{np} {vs} because {np} is {a}|although {p} {ed}, {np} was {a}
they must {v} {np}, but {p} cannot {v} {np}|there is no {n} like {np}|{np} costs {num} dollars
{p} might {v} {d}, or perhaps {v} {np}|I have {ed} {num} {ns} {d}|the {w} {n} {ed} the {w} {n}
{w} and {w} are {w}|my {w} is {w}|a {w} {w} for the {w}|{w} {pp}|do not {v} the {w}
the word {w} means {w}|is {w} a kind of {w}?|{ns}, {ns} and {ns}|I said {w}, not {w}|{ing} {ns} is {a}
{name} asked, where is {np}?|at {num} o'clock {p} {ed} {np}|{np} was {ed} by {np}
{num} plus {num} is {num}|look at {np} {ing} {pp}|{p} can {d} {v} {np}|to {v} is to {v}
before {ing}, {v} {np}|thank you for {ing} {np}|it was {a}, {a} and {a}|{d} {d} {p} {ed}
not every {n} is {a}|half of {np} {ed} {d}|both {ns} and {ns} {v} {pp}
"""
PATTERNS = [pattern for line in TEMPLATES.split("\n") for pattern in line.split("|") if pattern]


def sentence(rng: random.Random) -> str:
    """Draw a sentence, capitalized and punctuated."""
    kind = rng.random()
    if kind < 0.05:
        return rng.choice(v.PHRASES)
    if kind < 0.45:
        words = filled(rng.choice(PATTERNS), rng)
    elif kind < 0.85:
        words = " ".join(woven(rng))
    else:
        words = " ".join(any_word(rng) for _ in range(rng.choice((1, 1, 2, 3, 4, 5, 6))))
    return finished(words, rng)


def filled(pattern: str, rng: random.Random) -> str:
    """Fill every slot of a template."""
    return re.sub(r"\{(\w+)\}", lambda slot: SLOTS[slot[1]](rng), pattern)


def woven(rng: random.Random) -> list[str]:
    """Draw 3 to 14 words, mixing content and function words as in running text."""
    words: list[str] = []
    for _ in range(rng.randint(3, 14)):
        glue = rng.random() < (0.3 if words and words[-1].rstrip(",") in v.GLUE else 0.6)
        words.append(rng.choice(v.GLUE) if glue else any_word(rng))
        if rng.random() < 0.05:
            words[-1] += ","
    return words


def any_word(rng: random.Random) -> str:
    """Draw any word, common ones more often."""
    kind = rng.random()
    if kind < 0.04:
        return rng.choice(v.NAMES)
    if kind < 0.08:
        return number(rng)
    if kind < 0.25:
        return rng.choice(rng.choice((v.NOUNS, v.NOUNS, v.VERBS, v.ADJECTIVES, v.ADVERBS)))
    return rng.choice(v.level(_level(rng)))


def number(rng: random.Random) -> str:
    """Draw a number in words."""
    kind = rng.random()
    if kind < 0.5:
        return rng.choice(v.NUMBERS)
    tens = f"{rng.choice(v.NUMBERS[19:])} {rng.choice(v.NUMBERS[:9])}"
    if kind < 0.75:
        return tens
    rest = rng.choice(("", f" and {tens}", f" and {rng.choice(v.NUMBERS)}"))
    large = rng.choice(("hundred", "hundred", "thousand", "million"))
    return f"{rng.choice(('a', *v.NUMBERS[:9]))} {large}{rest}"


def noun_phrase(rng: random.Random) -> str:
    if rng.random() < 0.15:
        return rng.choice(PRONOUNS[:1] + v.NAMES)
    words = [_noun(rng)]
    if rng.random() < 0.45:
        words.insert(0, _adjective(rng))
    determiner = rng.choice(DETERMINERS)
    if determiner == "a" and words[0][0] in "aeiou":
        determiner = "an"
    return " ".join([determiner, *words])


def finished(words: str, rng: random.Random) -> str:
    """Capitalize and punctuate, with a few deliberate omissions."""
    if rng.random() < 0.95:
        words = words[0].upper() + words[1:]
    if words[-1] in "?!":
        return words
    return words.rstrip(",") + rng.choices((".", "!", "?", ""), (0.82, 0.06, 0.06, 0.06))[0]


def fingerprint(text: str) -> str:
    """Hash of a text that ignores tags, case, punctuation and spacing."""
    words = re.findall(r"[a-z']+", re.sub(r"\[S\d\]", " ", text).lower())
    return hashlib.sha256(" ".join(words).encode()).hexdigest()


def evaluation_fingerprints() -> set[str]:
    """Fingerprints of every evaluation sentence, dialogue and turn, which are kept out of training."""
    lines = [line for path in sorted(EVALUATION.glob("*.txt")) for line in path.read_text().splitlines()]
    lines += sentences()
    turns = [turn for line in lines for turn in re.split(r"\[S\d\]", line) if turn.strip()]
    return {fingerprint(text) for text in [*lines, *turns]}


def write(path: Path, count: int, seed: int) -> None:
    """Write `count` sentences, one per line, without those of the evaluation."""
    rng, held_out = random.Random(seed), evaluation_fingerprints()
    path.parent.mkdir(parents=True, exist_ok=True)
    written, unfinished = 0, path.with_suffix(".part")
    with unfinished.open("w") as file:
        while written < count:
            line = sentence(rng)
            if len(line) <= LONGEST and fingerprint(line) not in held_out:
                file.write(line + "\n")
                written += 1
    unfinished.rename(path)


def _level(rng: random.Random) -> str:
    return rng.choices(list(v.LEVELS), list(v.LEVELS.values()))[0]


def _noun(rng: random.Random) -> str:
    return rng.choice(v.NOUNS) if rng.random() < 0.6 else rng.choice(v.level(_level(rng)))


def _adjective(rng: random.Random) -> str:
    return rng.choice(v.ADJECTIVES) if rng.random() < 0.6 else rng.choice(v.level(_level(rng)))


def _ending(suffix: str):
    return lambda rng: rng.choice(v.ending(_level(rng), suffix))


def _adverb(rng: random.Random) -> str:
    return rng.choice(v.ADVERBS) if rng.random() < 0.6 else _ending("ly")(rng)


SLOTS = {
    "n": _noun,
    "ns": _ending("s"),
    "v": lambda rng: rng.choice(v.VERBS) if rng.random() < 0.7 else any_word(rng),
    "vs": _ending("s"),
    "ing": _ending("ing"),
    "ed": _ending("ed"),
    "a": _adjective,
    "d": _adverb,
    "np": noun_phrase,
    "pp": lambda rng: f"{rng.choice(TOWNS)} {noun_phrase(rng)}",
    "p": lambda rng: rng.choice(PRONOUNS),
    "name": lambda rng: rng.choice(v.NAMES),
    "num": number,
    "w": any_word,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--settings", type=Path, default=DEFAULT)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    settings = read_settings(given.settings)
    if not given.out.exists():
        write(given.out, settings.utterances, settings.seed)
    print(f"text: {settings.utterances} sentences in {given.out}")


if __name__ == "__main__":
    main()
