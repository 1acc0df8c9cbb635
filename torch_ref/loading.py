"""Published checkpoints, and folders that we converted, into PyTorch networks."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar, cast

import numpy as np
import torch

from converters.published import Part, open_published
from torch_ref.codecs.dac import Dac
from torch_ref.device import choose_device
from torch_ref.dia.dia import Dia
from torch_ref.dia.generate import DiaPipeline
from tts_core.dac import DacConfig
from tts_core.dia import DiaConfig
from tts_core.dia_shapes import is_norm
from tts_core.errors import UsageError

Network = TypeVar("Network", Dia, Dac)
DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}


def load(
    path: str | Path,
    *,
    dtype: str = "float32",
    device: str | None = None,
    codec: str | Path | None = None,
    cross_rope: bool | None = None,
) -> DiaPipeline:
    """A Dia with its codec.

    path: folder or file in any published layout (nari .pth, safetensors, transformers), a hub id, or a folder
    that convert-weights wrote, quantised ones included (they are dequantised).
    dtype: float32, bfloat16, float16 or float64, for the network; norms and the codec stay float32 (float64
    in float64).
    device: None takes CUDA, MPS or the CPU.   codec: where the DAC is, when `path` does not hold one.
    cross_rope: overrides what the config's schema says about rotary cross-attention (v0.1: True, 0626:
    False).
    Raises NotFoundError, CheckpointError, UsageError.
    """
    if dtype not in DTYPES:
        raise UsageError(f"dtype: {dtype!r} is not one of {', '.join(DTYPES)}")
    target = choose_device(device)
    published = open_published([path], codec=codec, cross_rope=cross_rope)
    assert published.dia is not None, "open_published asked for both"
    assert published.codec is not None, "open_published asked for both"
    with torch.device("meta"):
        network = Dia(cast(DiaConfig, published.dia.config))
        dac = Dac(cast(DacConfig, published.codec.config))
    codec_dtype = torch.float64 if dtype == "float64" else torch.float32
    return DiaPipeline(
        fill(network, published.dia, DTYPES[dtype], target), fill(dac, published.codec, codec_dtype, target)
    )


def fill(network: Network, part: Part, dtype: torch.dtype, device: torch.device) -> Network:
    """Give an empty network a part's tensors, one at a time; names and shapes were planned strictly."""
    wide = torch.promote_types(dtype, torch.float32)
    state = {
        name: _tensor(part.read(name)).to(device, wide if is_norm(name) else dtype) for name in part.names()
    }
    network.load_state_dict(state, strict=True, assign=True)
    return network.to(device).eval()


def _tensor(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array if array.flags.writeable else array.copy())
