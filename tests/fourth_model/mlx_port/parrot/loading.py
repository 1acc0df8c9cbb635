"""Parrot's parts as a pipeline."""

from __future__ import annotations

from typing import NamedTuple

from mlx_port.codecs.dac import Dac
from mlx_port.loading import Parts
from mlx_port.parrot.parrot import Parrot


class ParrotPipeline(NamedTuple):
    """The networks and the words; it does not speak yet."""

    network: Parrot
    codec: Dac
    words: str


def assemble(parts: Parts) -> ParrotPipeline:
    """Load all parts."""
    words = parts.documents["parrot"]["words.txt"]
    return ParrotPipeline(parts.network("parrot"), parts.network("dac"), words)
