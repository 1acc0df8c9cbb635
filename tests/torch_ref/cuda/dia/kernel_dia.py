"""A tiny Dia that the kernels run on: heads of powers of two, shared key heads, odd widths."""

from __future__ import annotations

from dataclasses import replace

from tests.sides import YARDSTICK
from tests.tiny.networks import dia_config, tiny
from tests.torch_ref.cuda.marks import DEVICE
from torch_ref.dia.dia import Dia
from tts_core.dia.config import DiaConfig


def config(*, cross_rope: bool = False, positions: int = 400) -> DiaConfig:
    whole = dia_config(cross_rope=cross_rope, positions=positions)
    return replace(whole, decoder_config=replace(whole.decoder_config, head_dim=16, cross_head_dim=32))


def network(*, cross_rope: bool = False, positions: int = 400, seed: int = 3) -> Dia:
    """In float32, on the device of the kernels."""
    weights = tiny(config(cross_rope=cross_rope, positions=positions), seed=seed)
    built = YARDSTICK.network("dia", weights)
    return built.to(DEVICE).eval()
