"""A tiny Qwen3-TTS that the kernels run on: heads of powers of two, shared key heads, few stages."""

from __future__ import annotations

from dataclasses import replace

from tests.sides import YARDSTICK
from tests.tiny.networks import qwen3_config, tiny
from tests.torch_ref.cuda.marks import DEVICE
from torch_ref.qwen3.qwen3 import Qwen3
from tts_core.qwen3.config import Qwen3Config


def config(mode: str = "custom_voice") -> Qwen3Config:
    """Of one width in the mode `base`, else with a projection."""
    whole = qwen3_config(mode)
    return replace(
        whole,
        talker=replace(whole.talker, head_dim=16, num_hidden_layers=2),
        predictor=replace(whole.predictor, head_dim=16, num_hidden_layers=1),
        n_codebooks=3,
    )


def network(mode: str = "custom_voice", *, dtype: str = "float32") -> Qwen3:
    """On the device of the kernels; norms stay float32."""
    return YARDSTICK.network("qwen3", tiny(config(mode)), dtype).to(DEVICE).eval()
