"""Training examples for the language model: sentences put together anew each time, into turns and dialogues.

Utterances begin and end in silence, so their codes may stand one behind the other.
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
from tts_core.dia import DiaConfig

POOL = 2048  # examples that are sorted by length before they are cut into batches
HELD_OUT = 200  # utterances for validation
ROUND = 32  # lengths are rounded up to this, for fewer shapes


class Corpus:
    """All utterances: codes (N, Q) uint8 one behind the other, texts, and who speaks."""

    def __init__(self, folder: Path):
        shards = [read_shard(folder, name) for name in shard_names(folder)]
        self.codes = np.concatenate([shard.array for shard in shards])
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
    """tokens: (S,) uint8.  codes: (T, Q) uint8.  where: (T,) float32, roughly the token being said.

    prompt: frames at the start that are given, not learned.
    """

    tokens: np.ndarray
    codes: np.ndarray
    where: np.ndarray
    prompt: int


class Batch(NamedTuple):
    """ids: (B, S) int64, 0 behind a text.  texts: (B,) their lengths.  codes: (B, T + 1, Q) int64, EOS and
    PAD behind the frames.  frames: (B,).  where: (B, T).  prompts: (B,).
    """

    ids: Tensor
    texts: Tensor
    codes: Tensor
    frames: Tensor
    where: Tensor
    prompts: Tensor

    def to(self, device: torch.device) -> Batch:
        return Batch(*(tensor.to(device, non_blocking=True) for tensor in self))


@dataclass(frozen=True)
class Recipe:
    """How examples are put together. alone: one sentence each."""

    longest: int
    swapped: float
    alone: bool
    max_text_bytes: int


def script(rng: random.Random, recipe: Recipe) -> list[tuple[int, int]]:
    """(speaker, sentences) of every turn."""
    if recipe.alone:
        return [(rng.randrange(2), 1)]
    count = rng.choices((1, 2, 3, 4), (0.35, 0.3, 0.2, 0.15))[0]
    speaker, turns = int(rng.random() < 0.35), []
    for _ in range(count):
        turns.append((speaker, rng.choices((1, 2, 3), (0.75, 0.2, 0.05))[0]))
        speaker = speaker if rng.random() < 0.05 else 1 - speaker
    return turns


def example(corpus: Corpus, pools: list[np.ndarray], rng: random.Random, recipe: Recipe) -> Example:
    """One text with its speech, up to the recipe's length."""
    swapped = not recipe.alone and rng.random() < recipe.swapped
    tokens, codes, where, prompt = bytearray(), [], [], 0
    frames = 0
    for speaker, sentences in script(rng, recipe):
        pool = pools[speaker ^ swapped]
        for place in range(sentences):
            utterance = int(pool[rng.randrange(len(pool))])
            said, length = corpus.texts[utterance], corpus.frames(utterance)
            full = frames + length > recipe.longest or len(tokens) + len(said) + 4 > recipe.max_text_bytes
            if full and codes:
                break
            if place == 0:
                tokens += (b" " if tokens else b"") + bytes([1 + speaker])
            tokens += b" "
            where.append(np.linspace(len(tokens), len(tokens) + len(said), length, dtype=np.float32))
            tokens += said
            codes.append(corpus.codes[corpus.starts[utterance] : corpus.stops[utterance]])
            frames += length
            if swapped and not prompt:
                prompt = length
        else:
            continue
        break
    if not recipe.alone and rng.random() < 0.1:  # a lone tag at the end says nothing
        tokens += b" " + bytes([1 + rng.randrange(2)])
    return Example(
        np.frombuffer(bytes(tokens), np.uint8), np.concatenate(codes), np.concatenate(where), prompt
    )


def collate(examples: list[Example], config: DiaConfig) -> Batch:
    """Pad a batch; every example gets its EOS row."""
    longest_text = _rounded(max(len(one.tokens) for one in examples))
    longest = _rounded(max(len(one.codes) for one in examples) + 1)
    count, channels = len(examples), config.decoder_config.num_channels
    ids = np.zeros((count, longest_text), np.int64)
    codes = np.full((count, longest, channels), config.pad_token_id, np.int64)
    where = np.zeros((count, longest), np.float32)
    for row, one in enumerate(examples):
        frames = len(one.codes)
        ids[row, : len(one.tokens)] = one.tokens
        codes[row, :frames] = one.codes
        codes[row, frames] = config.eos_token_id
        where[row, :frames] = one.where
        where[row, frames:] = one.where[-1]
    numbers = ([len(one.tokens), len(one.codes), one.prompt] for one in examples)
    texts, frames, prompts = torch.tensor(list(numbers)).unbind(1)
    return Batch(
        torch.from_numpy(ids), texts, torch.from_numpy(codes), frames, torch.from_numpy(where), prompts
    )


class Batches(IterableDataset):
    """An endless stream of batches of about `rows` grid rows each."""

    def __init__(self, corpus: Corpus, config: DiaConfig, recipe: Recipe, rows: int, seed: int):
        self.corpus, self.config, self.recipe, self.rows, self.seed = corpus, config, recipe, rows, seed

    def __iter__(self) -> Iterator[Batch]:
        worker = get_worker_info()
        rng = random.Random(self.seed * 1000 + (worker.id if worker else 0))
        while True:
            pool = [example(self.corpus, self.corpus.training, rng, self.recipe) for _ in range(POOL)]
            pool.sort(key=lambda one: len(one.codes))
            batches, begin = [], 0
            for end in range(1, len(pool) + 1):
                rows = _rounded(len(pool[min(end, len(pool) - 1)].codes) + 1) + self.config.longest_delay
                if end == len(pool) or rows * (end + 1 - begin) > self.rows:
                    if end < len(pool) or rows * (end - begin) > self.rows / 2:
                        batches.append(pool[begin:end])
                    begin = end
            rng.shuffle(batches)
            for batch in batches:
                yield collate(batch, self.config)


def stream(
    corpus: Corpus, config: DiaConfig, training: LanguageTraining, *, alone: bool, seed: int, workers: int
) -> Iterator[Batch]:
    """Batches made by `workers` processes of their own."""
    recipe = Recipe(training.longest, training.swapped, alone, config.max_text_bytes)
    dataset = Batches(corpus, config, recipe, training.rows, seed)
    loader = DataLoader(
        dataset,
        None,
        num_workers=workers,
        pin_memory=torch.cuda.is_available(),
        prefetch_factor=4 if workers else None,
    )
    return iter(loader)


def validation_batch(corpus: Corpus, config: DiaConfig, training: LanguageTraining, count: int) -> Batch:
    """Dialogues of utterances that are never trained on, always the same."""
    rng, recipe = random.Random(0), Recipe(training.longest, 0.0, False, config.max_text_bytes)
    return collate([example(corpus, corpus.validation, rng, recipe) for _ in range(count)], config)


def _rounded(length: int) -> int:
    return -(-length // ROUND) * ROUND
