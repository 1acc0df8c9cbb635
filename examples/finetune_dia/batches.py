"""Batches of recordings of similar length, and their loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from examples.finetune_dia.data import Recording
from examples.train_voice.teacher import delayed
from torch_ref.dia.dia import Dia
from tts_core.dia.config import DiaConfig

TEXT_DROPOUT = 0.1  # share of texts left out: guidance needs the model without a text
CODE_NOISE = 0.3  # largest share of random input codes, in half of the recordings: makes the text necessary
IGNORED = -100  # target of positions without a loss
POOL = 16  # batches per pool; recordings are sorted by length within a pool


class Batch(NamedTuple):
    """Inputs and targets of a step.

    texts: (S,) int64 each.  waves: (B, R, C) int64, input grid rows.  wanted: the row after each, IGNORED
    where the model draws nothing.
    """

    texts: list[Tensor]
    waves: Tensor
    wanted: Tensor


def order(lengths: Sequence[int], size: int, rng: np.random.Generator) -> list[list[int]]:
    """Plan one pass over recordings of these lengths: indices in batches of `size`, the last one smaller."""
    places = rng.permutation(len(lengths)).tolist()
    batches = []
    for begin in range(0, len(places), POOL * size):
        pool = sorted(places[begin : begin + POOL * size], key=lengths.__getitem__)
        batches += [pool[n : n + size] for n in range(0, len(pool), size)]
    return [batches[n] for n in rng.permutation(len(batches))]


def collate(
    recordings: Sequence[Recording],
    config: DiaConfig,
    rng: np.random.Generator,
    device: torch.device,
    *,
    text_dropout: float = TEXT_DROPOUT,
    code_noise: float = CODE_NOISE,
) -> Batch:
    """Build a batch; every recording gets an EOS row."""
    pad, eos = config.pad_token_id, config.eos_token_id
    longest = max(len(recording.codes) for recording in recordings)
    codes = np.full((len(recordings), longest + 1, config.decoder_config.num_channels), pad, np.int64)
    waves = codes.copy()
    for row, recording in enumerate(recordings):
        count = len(recording.codes)
        wrong = rng.random(recording.codes.shape) < rng.uniform(
            -code_noise, code_noise
        )  # half have no wrong code
        codes[row, :count] = recording.codes
        waves[row, :count] = np.where(wrong, rng.integers(0, eos, recording.codes.shape), recording.codes)
        codes[row, count] = waves[row, count] = eos
    frames = torch.tensor([len(recording.codes) for recording in recordings])
    marks = config.delay_pattern, config.bos_token_id, pad
    rows, drawn = delayed(torch.from_numpy(codes), frames, *marks)
    given, _ = delayed(torch.from_numpy(waves), frames, *marks)
    wanted = rows.masked_fill(~drawn, IGNORED)
    with_text = rng.random(len(recordings)) >= text_dropout
    # no text means zeros of any length, which all encode to the same vector
    texts = [
        torch.from_numpy(recording.tokens if has_text else np.zeros(1, np.int64)).to(device)
        for recording, has_text in zip(recordings, with_text, strict=True)
    ]
    return Batch(texts, given[:, :-1].to(device), wanted[:, 1:].to(device))


def loss(network: Dia, batch: Batch) -> Tensor:
    """Cross-entropy in nats of every code given all earlier ones. → scalar.

    The first channels, which carry most of the speech, have the largest weights.
    """
    device = batch.waves.device
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda", cache_enabled=False):
        logits = network(batch.waves, network.new_cache(), network.read(batch.texts))
    by_token = F.cross_entropy(
        logits.flatten(0, 2), batch.wanted.flatten(), ignore_index=IGNORED, reduction="none"
    ).view(batch.wanted.shape)
    channels = by_token.sum((0, 1)) / (batch.wanted != IGNORED).sum((0, 1)).clamp_min(1)
    weights = 1 / (1 + torch.arange(len(channels), device=device) / 4)
    return (channels * weights).sum() / weights.sum()
