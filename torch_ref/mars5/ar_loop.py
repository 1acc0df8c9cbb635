"""MARS5's autoregressive loop: ids of one text, one by one.

Upstream: Camb-ai/MARS5-TTS@84697c8 (AGPL-3.0); written from a description, none of its code was used.
Differs from upstream: logits that are not finite end the run with an error.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np
import torch

from torch_ref.device import name_of
from torch_ref.mars5.codec_lm import CodecLM
from torch_ref.mars5.sampling import draw
from torch_ref.mars5.step import Draw, PendingId, make_step
from tts_core.mars5.options import Mars5Options
from tts_core.mars5.sequence import CodecSequence
from tts_core.nn.guard import not_finite
from tts_core.nn.noise import Noise


@torch.inference_mode()
def extend(
    network: CodecLM,
    codes: np.ndarray,
    sequence: CodecSequence,
    options: Mars5Options,
    noise: Noise,
    *,
    choose: Draw = draw,
) -> Iterator[CodecSequence]:
    """Draw ids until the sequence is done; yield it after each draw. One read from the device per draw.

    codes: (Q, P), the reference.  noise: one number per draw, `uniform(n, (1,))` for the n-th, from 0.
    choose: a function like `sampling.draw`.
    Raises GenerationError if logits are NaN or infinite.
    """
    if sequence.done:
        return
    weight = network.embed.weight
    reference = torch.from_numpy(np.ascontiguousarray(codes.T[None])).to(weight.device)
    step = make_step(network, network.speaker(reference), sequence, options, choose)
    launched: deque[PendingId] = deque()
    sent = 0
    while not sequence.done:
        while sent < sequence.room and len(launched) <= step.ahead:
            launched.append(step(float(noise.uniform(sent, (1,))[0])))
            sent += 1
        drawn = step.read(launched.popleft())
        if drawn < 0:
            raise not_finite(None, name_of(weight.dtype), text=1, row=len(sequence.generated))
        sequence.accept(drawn)
        yield sequence
