"""Networks of full size without weights: shapes only."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import nn

from torch_ref.codecs.dac import Dac
from torch_ref.codecs.encodec import Encodec
from torch_ref.codecs.mimi import Mimi
from torch_ref.codecs.qwen3_codec import Qwen3Codec
from torch_ref.codecs.vocos import Vocos
from tts_core.codecs.dac import DAC_44KHZ
from tts_core.codecs.encodec import ENCODEC_24KHZ
from tts_core.codecs.mimi import MIMI_24KHZ
from tts_core.codecs.qwen3_codec import QWEN3_CODEC_12HZ
from tts_core.codecs.vocos import VOCOS_ENCODEC_24KHZ

CODECS: dict[str, tuple[Callable[[Any], nn.Module], Any]] = {
    "dac": (Dac, DAC_44KHZ),
    "encodec": (Encodec, ENCODEC_24KHZ),
    "mimi": (Mimi, MIMI_24KHZ),
    "vocos": (Vocos, VOCOS_ENCODEC_24KHZ),
    "qwen3_codec": (Qwen3Codec, QWEN3_CODEC_12HZ),
}


def network(kind: Callable[..., nn.Module], *config: Any) -> Any:
    """A network of shapes only: no weight is allocated."""
    with torch.device("meta"):
        return kind(*config).to("meta").eval()


@cache
def codec(name: str) -> Any:
    return network(*CODECS[name])


def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype, device="meta")


def codes(*shape: int) -> torch.Tensor:
    return zeros(*shape, dtype=torch.int32)
