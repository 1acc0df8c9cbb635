"""MetaVoice's first loop: text ids and speakers in, ids of two interleaved codebooks out.

Source: metavoiceio/metavoice-src, July 2024 (Apache-2.0), its fast and its slow inference, which with one
text are the same loop.
Differs from upstream: caches have the requested size; a text may end with its first id; each text has its own
limit and random numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from torch_ref.guard import watched
from torch_ref.host import Host
from torch_ref.metavoice.first_stage import FirstStage
from torch_ref.metavoice.step import Step, make_step, stacked
from torch_ref.reading import begin_read, finish_read
from tts_core.errors import GenerationError
from tts_core.metavoice.config import END_OF_AUDIO
from tts_core.metavoice.sampling import FirstStageSampling, waiting_times
from tts_core.metavoice.tokens import TokenRows, check_room, grouped
from tts_core.nn.guard import not_finite
from tts_core.nn.noise import Noise


@torch.inference_mode()
def generate_tokens(
    network: FirstStage,
    prompts: Sequence[np.ndarray],
    embeddings: np.ndarray,
    *,
    sampling: FirstStageSampling,
    limits: Sequence[int],
    noise: Sequence[Noise],
    end_of_text: int,
    end_of_audio: int = END_OF_AUDIO,
    batch_size: int | None = None,
    check: Callable[[], None] | None = None,
) -> list[np.ndarray]:
    """Continue each text by at most its limit of ids; the last one is the end of audio, if drawn.

    prompts: (S,) ids of each text, end of text included.  embeddings: (B, E) float32.  noise: one source per
    text, read at the index of each new id.  batch_size: texts run in parallel; None for all.
    check: called between columns; may raise.
    Returns prompt and new ids, (N,) int32 each, in the order of the prompts, each independent of the batch.
    Raises UsageError if a prompt and its limit exceed the network's positions, GenerationError for NaN or
    infinite logits.
    """
    check_room(prompts, limits, network.config.max_position_embeddings)
    groups = grouped(prompts, batch_size or max(1, len(prompts)))
    rows = [
        TokenRows([prompts[i] for i in group], [limits[i] for i in group], end=end_of_audio)
        for group in groups
    ]
    made, host = dict[int, np.ndarray](), Host(network.transformer.wpe)
    for group, texts in zip(groups, rows, strict=True):
        step = make_step(
            network,
            host.to_device(embeddings[group]),
            sampling,
            room=texts.ids.shape[1] - 1,
            end_of_text=end_of_text,
        )
        _fill(host, step, texts, [noise[i] for i in group], group, check)
        made |= dict(zip(group, texts.sequences(), strict=True))
    return [made[item] for item in range(len(prompts))]


def _fill(
    host: Host,
    step: Step,
    rows: TokenRows,
    noise: Sequence[Noise],
    places: Sequence[int],
    check: Callable[[], None] | None,
) -> None:
    """Fill the rows with one read from the device per column. Once all prompts have ended, the next column is
    started before the current one is read, so the device does not wait for the host; an ending text then
    computes one extra column.

    places: indices of the texts among all, from 0, for messages.
    """
    network, sampling = step.network, step.sampling
    waiting = _waiting(host, network, rows.steps(), sampling, noise)
    pending = step(host.to_device(rows.ids[:, : rows.filled]), waiting)
    while True:
        if check is not None:
            check()
        read, following = begin_read(pending), None
        ahead = rows.steps(ahead=1)
        waiting = _waiting(host, network, ahead, sampling, noise)
        if rows.is_free and any(place is not None for place in ahead):
            following = step(pending.clamp(min=0)[:, None], waiting)
        drawn = finish_read(read)
        wrong = [item for item, place in enumerate(rows.steps()) if place is not None and drawn[item] < 0]
        if wrong:
            raise _fault(host, step, rows, wrong[0], places[wrong[0]])
        rows.accept(drawn)
        if rows.done:
            return
        if following is None:
            following = step(host.to_device(rows.ids[:, rows.filled - 1 : rows.filled]), waiting)
        pending = following


def _waiting(
    host: Host,
    network: FirstStage,
    steps: Sequence[int | None],
    sampling: FirstStageSampling,
    noise: Sequence[Noise],
) -> Tensor | None:
    """Draw waiting times (B, V) float32 on the device; ones for rows without a draw, None if no row draws."""
    if sampling.greedy:
        return None
    ids = network.config.vocab_size
    numbers = [
        np.ones(ids, np.float32) if step is None else waiting_times(source, step, (ids,))
        for step, source in zip(steps, noise, strict=True)
    ]
    return host.to_device(np.stack(numbers))


def _fault(host: Host, step: Step, rows: TokenRows, item: int, place: int) -> GenerationError:
    """Build the error that names the first layer with NaN or infinity, by running a text again by itself."""
    network = step.network
    tokens = host.to_device(rows.ids[item : item + 1, : rows.filled])
    speakers = step.speakers.unflatten(0, (step.sampling.rows, -1))[:, item]
    with watched(network) as found:
        network.next_logits(
            stacked(tokens, step.sampling, step.end_of_text), speakers, network.new_cache(rows.filled)
        )
    return not_finite(next(iter(found), None), host.dtype, text=place + 1, row=rows.filled)
