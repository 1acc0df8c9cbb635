"""Training examples for the language model: sentences combined into new turns and dialogues every time.

Utterances begin and end in silence, so their codes can be concatenated. Batches have few shapes, so that a
training step can be captured once per shape.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from examples.train_voice.settings import LanguageTraining
from examples.train_voice.speech import read_shard, shard_names
from tts_core.dia.config import DiaConfig

IGNORED = -100
HELD_OUT = 200  # utterances for validation
FRAMES = (64, 96, 128, 160, 224, 320, 448)  # of the shapes below the longest example's
BYTES_PER_FRAME, MORE_BYTES = 0.6, 24  # of text in a shape


class Corpus:
    """All utterances of the two speakers.

    codes: (N, Q) uint8, concatenated.  places, phones: (N,), each frame's place in its text and its phone.
    texts: of the utterances.  training, validation: utterances by speaker.
    """

    def __init__(self, folder: Path):
        shards = [read_shard(folder, name) for name in shard_names(folder)]
        if not shards:
            raise SystemExit(f"language model: no codes in {folder}; encode some speech first")
        self.codes = np.concatenate([shard.arrays["codes"] for shard in shards])
        self.positions = np.concatenate([shard.arrays["places"] for shard in shards])
        self.phones = np.concatenate([shard.arrays["phones"] for shard in shards])
        self.texts = [text.encode() for shard in shards for text in shard.texts]
        lengths = np.array([length for shard in shards for length in shard.lengths])
        self.stops = np.cumsum(lengths)
        self.starts = self.stops - lengths
        voices = np.array([voice for shard in shards for voice in shard.voices])
        places = np.arange(len(voices))
        self.training = [np.flatnonzero((voices == voice) & (places >= HELD_OUT)) for voice in (0, 1)]
        self.validation = [np.flatnonzero((voices == voice) & (places < HELD_OUT)) for voice in (0, 1)]

    def frames(self, utterance: int) -> int:
        return int(self.stops[utterance] - self.starts[utterance])


class Example(NamedTuple):
    """One text with its speech.

    tokens: (S,) uint8.  codes: (T, Q) uint8.  where: (T,) float32, the token spoken in each frame.  phones:
    (T,).  prompt: number of first frames that are given, without a loss.
    """

    tokens: np.ndarray
    codes: np.ndarray
    where: np.ndarray
    phones: np.ndarray
    prompt: int


class Batch(NamedTuple):
    """Padded examples.

    ids: (B, S) int64, 0 after a text and for a text that is left out.  texts: (B,) lengths.  with_text: (B,)
    False for a text that is left out.  codes: (B, T + 1, Q) int64, EOS and PAD after the frames.  heard: the
    codes as input, some of them wrong, as in generation.  frames: (B,).  where: (B, T + 1).  prompts: (B,).
    said: (B, T + 1) int64, each frame's phone.  sounds: (B, S) int64, each token's phone; IGNORED if none.
    """

    ids: Tensor
    texts: Tensor
    with_text: Tensor
    codes: Tensor
    heard: Tensor
    frames: Tensor
    where: Tensor
    prompts: Tensor
    said: Tensor
    sounds: Tensor

    def to(self, device: torch.device) -> Batch:
        return Batch(*(tensor.to(device, non_blocking=True) for tensor in self))


class Shape(NamedTuple):
    """Shape of a batch: number of examples, most frames, most bytes of text."""

    examples: int
    frames: int
    text: int


@dataclass(frozen=True)
class Recipe:
    """Parameters of examples. single: one sentence each."""

    longest: int
    swapped: float
    single: bool
    max_text_bytes: int
    text_dropout: float = 0.0
    code_noise: float = 0.0


def shapes(config: DiaConfig, recipe: Recipe, rows: int) -> list[Shape]:
    """Build the shapes, from short to long, with about `rows` grid rows each."""
    made = []
    for frames in [*(frames for frames in FRAMES if frames < recipe.longest), recipe.longest]:
        text = min(8 * round((BYTES_PER_FRAME * frames + MORE_BYTES) / 8), recipe.max_text_bytes)
        made.append(Shape(max(1, rows // (frames + 2 + config.longest_delay)), frames, text))
    return made


def script(rng: random.Random, recipe: Recipe) -> list[tuple[int, int]]:
    """Draw the turns: (speaker, number of sentences) each."""
    if recipe.single:
        return [(rng.randrange(2), 1)]
    count = rng.choices((1, 2, 3, 4), (0.35, 0.3, 0.2, 0.15))[0]
    speaker, turns = int(rng.random() < 0.35), []
    for _ in range(count):
        turns.append((speaker, rng.choices((1, 2, 3), (0.75, 0.2, 0.05))[0]))
        speaker = speaker if rng.random() < 0.05 else 1 - speaker
    return turns


def example(corpus: Corpus, pools: list[np.ndarray], rng: random.Random, recipe: Recipe) -> Example:
    """Draw one example of at most the recipe's length."""
    swapped = not recipe.single and rng.random() < recipe.swapped
    tokens, codes, where, phones, prompt = bytearray(), [], [], [], 0
    frames = 0
    for speaker, sentences in script(rng, recipe):
        pool = pools[speaker ^ swapped]
        for index in range(sentences):
            utterance = int(pool[rng.randrange(len(pool))])
            said, length = corpus.texts[utterance], corpus.frames(utterance)
            full = frames + length > recipe.longest or len(tokens) + len(said) + 4 > recipe.max_text_bytes
            if full and codes:
                break
            if index == 0:
                tokens += (b" " if tokens else b"") + bytes([1 + speaker])
            tokens += b" "
            own = slice(corpus.starts[utterance], corpus.stops[utterance])
            where.append(corpus.positions[own].astype(np.float32) + len(tokens))
            tokens += said
            codes.append(corpus.codes[own])
            phones.append(corpus.phones[own])
            frames += length
            if swapped and not prompt:
                prompt = length
        else:
            continue
        break
    if not recipe.single and rng.random() < 0.1:  # a tag at the end is silent
        tokens += b" " + bytes([1 + rng.randrange(2)])
    text = np.frombuffer(bytes(tokens), np.uint8)
    return Example(text, np.concatenate(codes), np.concatenate(where), np.concatenate(phones), prompt)


def collate(
    examples: list[Example], config: DiaConfig, shape: Shape, recipe: Recipe, rng: np.random.Generator
) -> Batch:
    """Build a batch of a shape; every example gets an EOS row."""
    count, channels = len(examples), config.decoder_config.num_channels
    ids = np.zeros((count, shape.text), np.int64)
    codes = np.full((count, shape.frames + 1, channels), config.pad_token_id, np.int64)
    heard = codes.copy()
    where = np.zeros((count, shape.frames + 1), np.float32)
    said = np.full((count, shape.frames + 1), IGNORED, np.int64)
    sounds = np.full((count, shape.text), IGNORED, np.int64)
    with_text = rng.random(count) >= recipe.text_dropout
    for row, example in enumerate(examples):
        frames = len(example.codes)
        if with_text[row]:
            ids[row, : len(example.tokens)] = example.tokens
        codes[row, :frames] = example.codes
        share = max(0.0, rng.uniform(-recipe.code_noise, recipe.code_noise))  # half have no wrong code
        wrong = rng.random((frames, channels)) < share
        heard[row, :frames] = np.where(
            wrong, rng.integers(0, config.eos_token_id, wrong.shape), example.codes
        )
        codes[row, frames] = heard[row, frames] = config.eos_token_id
        where[row, :frames] = example.where
        where[row, frames:] = example.where[-1]
        said[row, :frames] = example.phones
        if with_text[row]:
            sounds[row, np.rint(example.where).astype(int).clip(0, len(example.tokens) - 1)] = example.phones
    numbers = ([len(example.tokens), len(example.codes), example.prompt] for example in examples)
    texts, frames, prompts = torch.tensor(list(numbers)).unbind(1)
    arrays = map(torch.from_numpy, (ids, with_text, codes, heard, where, said, sounds))
    ids, with_text, codes, heard, where, said, sounds = arrays
    return Batch(
        ids, texts.clone(), with_text, codes, heard, frames.clone(), where, prompts.clone(), said, sounds
    )


class Batches(IterableDataset):
    """Endless stream of batches with about `rows` grid rows each."""

    def __init__(self, corpus: Corpus, config: DiaConfig, recipe: Recipe, rows: int, seed: int):
        self.corpus, self.config, self.recipe, self.seed = corpus, config, recipe, seed
        self.shapes = shapes(config, recipe, rows)

    def __iter__(self) -> Iterator[Batch]:
        worker = get_worker_info()
        seed = self.seed * 1000 + (worker.id if worker else 0)
        rng, noise = random.Random(seed), np.random.default_rng(seed)
        waiting: list[list[Example]] = [[] for _ in self.shapes]
        while True:
            drawn = example(self.corpus, self.corpus.training, rng, self.recipe)
            for shape, held in zip(self.shapes, waiting, strict=True):
                if len(drawn.codes) <= shape.frames and len(drawn.tokens) <= shape.text:
                    held.append(drawn)
                    if len(held) == shape.examples:
                        yield collate(held, self.config, shape, self.recipe, noise)
                        held.clear()
                    break


def stream(
    corpus: Corpus,
    config: DiaConfig,
    training: LanguageTraining,
    *,
    single: bool,
    seed: int,
    workers: int,
) -> Iterator[Batch]:
    """Stream batches from `workers` processes."""
    recipe = Recipe(
        training.longest,
        training.swapped,
        single,
        config.max_text_bytes,
        training.text_dropout,
        training.code_noise,
    )
    loader = DataLoader(
        Batches(corpus, config, recipe, training.rows, seed),
        None,
        num_workers=workers,
        pin_memory=torch.cuda.is_available(),
        prefetch_factor=4 if workers else None,
    )
    return iter(loader)


def validation_batch(corpus: Corpus, config: DiaConfig, training: LanguageTraining, count: int) -> Batch:
    """Build the validation batch: the same dialogues of held-out utterances every time."""
    rng, recipe = random.Random(0), Recipe(training.longest, 0.0, False, config.max_text_bytes)
    examples = [example(corpus, corpus.validation, rng, recipe) for _ in range(count)]
    shape = Shape(
        count,
        max(len(example.codes) for example in examples),
        max(len(example.tokens) for example in examples),
    )
    return collate(examples, config, shape, recipe, np.random.default_rng(0))
