"""A tiny Dia2 that the kernels run on: heads of powers of two, shared key heads, odd widths."""

from __future__ import annotations

from dataclasses import replace

from tests.sides import YARDSTICK
from tests.tiny.networks import dia2_config, other_config, tiny
from tests.torch_ref.cuda.marks import DEVICE
from torch_ref.dia2.dia2 import Dia2
from tts_core.dia2.config import GATED, Dia2Config


def config(*, rope: bool = True) -> Dia2Config:
    """Without rope also the other switches."""
    whole = dia2_config() if rope else other_config()
    return replace(
        whole,
        transformer=replace(whole.transformer, head_dim=16, activations=GATED),
        depformer=replace(whole.depformer, head_dim=16, activations=GATED),
        depformer_has_text=False,
        max_context_steps=40,
    )


def network(*, rope: bool = True, dtype: str = "float32", seed: int = 3) -> Dia2:
    """On the device of the kernels; norms and the action head stay float32."""
    return YARDSTICK.network("dia2", tiny(config(rope=rope), seed=seed), dtype).to(DEVICE).eval()
