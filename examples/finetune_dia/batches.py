"""Batches of recordings, each of about the same length, and what the network is to learn from one."""

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

TEXT_DROPOUT = 0.1  # of the texts are left out: guidance needs the model without a text
CODE_NOISE = 0.3  # at most, of the codes heard are random, in half of the recordings: so the text is needed
IGNORED = -100  # stands where nothing is to be learned
POOL = 16  # batches whose recordings are sorted by length together


class Batch(NamedTuple):
    """texts: (S,) int64 each.  heard, wanted: (B, R, C) int64 grid rows, and what comes behind each,
    IGNORED where the model draws nothing.
    """

    texts: list[Tensor]
    heard: Tensor
    wanted: Tensor


def order(lengths: Sequence[int], size: int, rng: np.random.Generator) -> list[list[int]]:
    """One pass over recordings of these lengths: places, `size` to a batch, the last one smaller."""
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
    """One batch; every recording gets its EOS row."""
    pad, eos = config.pad_token_id, config.eos_token_id
    longest = max(len(one.codes) for one in recordings)
    codes = np.full((len(recordings), longest + 1, config.decoder_config.num_channels), pad, np.int64)
    heard = codes.copy()
    for row, one in enumerate(recordings):
        count = len(one.codes)
        wrong = rng.random(one.codes.shape) < rng.uniform(-code_noise, code_noise)  # half hear all right
        codes[row, :count] = one.codes
        heard[row, :count] = np.where(wrong, rng.integers(0, eos, one.codes.shape), one.codes)
        codes[row, count] = heard[row, count] = eos
    frames = torch.tensor([len(one.codes) for one in recordings])
    marks = config.delay_pattern, config.bos_token_id, pad
    rows, drawn = delayed(torch.from_numpy(codes), frames, *marks)
    given, _ = delayed(torch.from_numpy(heard), frames, *marks)
    wanted = rows.masked_fill(~drawn, IGNORED)
    told = rng.random(len(recordings)) >= text_dropout
    # no text is zeros of any length; they all encode to one vector
    texts = [
        torch.from_numpy(one.tokens if kept else np.zeros(1, np.int64)).to(device)
        for one, kept in zip(recordings, told, strict=True)
    ]
    return Batch(texts, given[:, :-1].to(device), wanted[:, 1:].to(device))


def loss(network: Dia, batch: Batch) -> Tensor:
    """Cross-entropy in nats of every code given all that comes before it; the first channels, which carry
    most of what is said, count most. → scalar.
    """
    device = batch.heard.device
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda", cache_enabled=False):
        logits = network(batch.heard, network.new_cache(), network.read(batch.texts))
    each = F.cross_entropy(
        logits.flatten(0, 2), batch.wanted.flatten(), ignore_index=IGNORED, reduction="none"
    ).view(batch.wanted.shape)
    channels = each.sum((0, 1)) / (batch.wanted != IGNORED).sum((0, 1)).clamp_min(1)
    weights = 1 / (1 + torch.arange(len(channels), device=device) / 4)
    return (channels * weights).sum() / weights.sum()
