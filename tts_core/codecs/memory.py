"""Memory of codecs: the tensors that are live at once in their widest layer."""

from __future__ import annotations

from collections.abc import Mapping

from tts_core.codecs import vocos
from tts_core.codecs.policy import ONE_BY_ONE, ROWS
from tts_core.codecs.vocos import VocosConfig
from tts_core.memory.machine import Machine
from tts_core.memory.terms import LIVE, OVERLAPS, Term
from tts_core.printable import counted

GRAPHS = "codec graphs"  # a term that no peak of CUDA's allocator shows: a graph's memory counts as free


def widest_layer(
    name: str,
    elements: int,
    where: str,
    machine: Machine,
    live: Mapping[str, int] = LIVE,
    *,
    size: int | None = None,
) -> Term:
    """Return the live tensors of a codec's widest layer.

    elements: of one.
    where: the layer and its frames, in words.
    live: tensors, by backend.
    size: bytes of a number; None is the machine's wide one.
    """
    tensors = live[machine.backend]
    return Term(name, tensors * (size or machine.wide) * elements, f"{counted(tensors, 'tensor')} of {where}")


def most_rows(texts: int, backend: str) -> int:
    """Count the streams that share a call of their codec, at most."""
    return 1 if backend in (*OVERLAPS, *ONE_BY_ONE) else min(ROWS, texts)


def stream_states(carried: int, texts: int, captured: int, machine: Machine) -> tuple[Term, ...]:
    """Return what streams carry from call to call; a call computes new states beside those of its streams.

    carried: numbers of a stream.
    captured: lengths of calls that are captured, each with memory for both.
    """
    rows = most_rows(texts, machine.backend)
    one, why = machine.wide * carried, f"{counted(texts, 'stream')} and {rows} new"
    held = Term("codec state", one * (texts + rows), why)
    if not captured:
        return (held,)
    return held, Term(GRAPHS, 2 * one * captured, "states of captured calls, which keep their memory")


def vocos_window(name: str, config: VocosConfig, frames: int, most: int, machine: Machine) -> Term:
    """Return the largest window of Vocos' decode. most: frames that are decoded at a time."""
    fed = min(frames, most)
    why = f"Vocos, a window of {fed + 2 * vocos.decode_lookahead(config)} frames"
    return Term(name, machine.wide * vocos.live_elements(config, fed), why)
