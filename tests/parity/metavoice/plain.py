"""MetaVoice's first stage in its plainest form.

Every id recomputes the whole sequence in float64, without cache or batch; the rules are NumPy's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tests.tts_core.metavoice import sampling_rules as rules
from tests.tts_core.metavoice.sampling_rules import waiting_times
from tts_core.metavoice.config import END_OF_AUDIO
from tts_core.metavoice.inputs import FirstStageSampling
from tts_core.nn.noise import Noise


@dataclass(frozen=True)
class Plain:
    """ids: prompt and generated ids.  margin: smallest margin of a race, as a logarithm."""

    ids: np.ndarray
    margin: float


def generate(
    network: Any,
    prompt: np.ndarray,
    embedding: np.ndarray,
    noise: Noise,
    sampling: FirstStageSampling,
    limit: int,
    end_of_text: int,
    end: int = END_OF_AUDIO,
) -> Plain:
    """network: in float64.  embedding: (E,)."""
    ids, margin = list(prompt), np.inf
    speakers = network.speakers(torch.from_numpy(embedding[None]).double())
    for step in range(limit):
        with_text, without = (
            np.array([ids]),
            np.array([[end_of_text if i > END_OF_AUDIO else i for i in ids]]),
        )
        rows = [(with_text, speakers), (with_text, 0 * speakers), (without, speakers)][: sampling.rows]
        logits = [
            network(torch.from_numpy(tokens), heard, network.new_cache(len(ids)))[0, -1].numpy()
            for tokens, heard in rows
        ]
        guided = rules.guide(logits, sampling.cfg_scale, sampling.text_cfg_scale)
        rule = rules.probabilities_fast if sampling.rule == "fast" else rules.probabilities_slow
        probs = rule(guided, sampling.temperature, sampling.top_p, sampling.top_k)
        waiting = waiting_times(noise, step, probs.shape)
        with np.errstate(divide="ignore"):
            score = np.log(probs) - (0 if sampling.greedy else np.log(waiting))
        best = np.sort(score)[-2:]
        margin = min(margin, best[1] - best[0])
        ids.append(int(score.argmax()))
        if ids[-1] == end:
            break
    return Plain(np.array(ids, np.int32), float(margin))
