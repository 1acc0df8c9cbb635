"""The ids of one text, from a side's slots."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np

from tests.sides import Side
from tts_core.mars5.inputs import CodecSequence, Mars5Inputs
from tts_core.mars5.options import Mars5Options
from tts_core.nn.guard import NotFiniteError
from tts_core.nn.noise import Noise

Draw = Callable[[Any, Any], Any]


def extend(
    side: Side,
    network: Any,
    codes: np.ndarray,
    sequence: CodecSequence,
    options: Mars5Options,
    noise: Noise,
    *,
    slots: Any = None,
    choose: Draw | None = None,
) -> Iterator[CodecSequence]:
    """Draw ids until the sequence is done; yield it after each id. codes: (Q, P), the reference's.

    slots: of one text; None builds the side's plain ones.  choose: in place of `sampling.inverse`.
    """
    options = replace(options, generate_max_len_override=sequence.max_len)
    vocabulary = sequence.vocabulary
    room, ids = sequence.max_len, {"lowest": vocabulary.lowest, "end": vocabulary.end}
    own = slots or side.module("mars5.decoder").make_slots(network, texts=1, capacity=room, **ids)
    own.join({0: Mars5Inputs(sequence.prompt, codes, options, noise)})
    launched, sent = deque[Any](), 0
    while not sequence.done:
        while sent < sequence.room and len(launched) <= own.ahead:
            with drawing(side, choose):
                launched.append(own.launch(own.steps))
            sent += own.steps
        for drawn in own.read(launched.popleft())[:, 0].tolist():
            if sequence.done:
                break
            if drawn < 0:
                dtype = side.module("host").Host(network.embed).dtype
                raise NotFiniteError(None, dtype, text=1, row=len(sequence.generated))
            sequence.accept(drawn)
            yield sequence
    own.leave(0)


@contextmanager
def drawing(side: Side, choose: Draw | None) -> Iterator[None]:
    """Let `choose` draw in place of `sampling.inverse`, which it may call."""
    sampling = side.module("sampling")
    own = sampling.inverse

    def chosen(draw: Any, uniform: Any) -> Any:
        with mock.patch.object(sampling, "inverse", own):
            if choose is None:
                return own(draw, uniform)
            ids = side.numpy(choose(draw, uniform))
            return side.array(ids.astype(np.int32 if side.kind == "mlx" else np.int64))

    with mock.patch.object(sampling, "inverse", chosen):
        yield


def probabilities(side: Side, draw: Any) -> np.ndarray:
    """Of the id that a text's `sampling.Draw` draws, (V,) float64."""
    scores = side.numpy(draw.scores)[0].astype(np.float64)
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()
