"""MARS5's autoregressive loop: ids of one text, one by one.

Upstream: Camb-ai/MARS5-TTS@84697c8 (AGPL-3.0); written from a description, none of its code was used.
Differs from upstream: logits that are not finite end the run with an error.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import mlx.core as mx
import numpy as np

from mlx_port.mars5.codec_lm import CodecLM
from mlx_port.mars5.sampling import draw
from mlx_port.mars5.step import Draw, make_step
from tts_core.mars5.options import Mars5Options
from tts_core.mars5.sequence import CodecSequence
from tts_core.nn.guard import not_finite
from tts_core.nn.noise import Noise


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
    speaker = network.speaker(mx.array(codes.T[None]))
    step = make_step(network, speaker, sequence, options, choose)
    launched: deque[mx.array] = deque()
    sent = 0
    while not sequence.done:
        while sent < sequence.room and len(launched) <= step.ahead:
            launched.append(step(float(noise.uniform(sent, (1,))[0])))
            sent += 1
        drawn = step.read(launched.popleft())
        if drawn < 0:
            dtype = str(network.embed.weight.dtype).removeprefix("mlx.core.")
            raise not_finite(None, dtype, text=1, row=len(sequence.generated))
        sequence.accept(drawn)
        yield sequence
