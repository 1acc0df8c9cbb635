"""Published checkpoints, and folders that we converted, into PyTorch networks."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import numpy as np
import torch

from converters.published import Part, open_published
from torch_ref.codecs.dac import Dac
from torch_ref.device import choose, name_of
from torch_ref.dia.dia import Dia
from torch_ref.dia.generate import DiaPipeline
from torch_ref.memory import backend_name, free_bytes
from tts_core.dia_shapes import is_norm
from tts_core.room import check_loading

Network = TypeVar("Network", Dia, Dac)


def load(
    path: str | Path,
    *,
    dtype: str | None = None,
    device: str | None = None,
    codec: str | Path | None = None,
    cross_rope: bool | None = None,
) -> DiaPipeline:
    """A Dia with its codec.

    path: folder or file in any published layout (nari .pth, safetensors, transformers), a hub id, or a folder
    that convert-weights wrote, quantised ones included (they are dequantised).
    dtype: float32, bfloat16, float16 or float64, for the network; norms and the codec stay float32 (float64
    in float64). None takes float32 on the CPU and MPS, on CUDA bfloat16, or float16 where bfloat16 is only
    emulated.
    device: None takes CUDA, MPS or the CPU. What was chosen, and why, goes to the logger "torch_ref".
    codec: where the DAC is, when `path` does not hold one.
    cross_rope: overrides what the config's schema says about rotary cross-attention (v0.1: True, 0626:
    False).
    Raises NotFoundError, CheckpointError, UsageError, and ResourceError where memory would not hold it.
    """
    target, chosen = choose(device, dtype)
    published = open_published([path], codec=codec, cross_rope=cross_rope)
    check_loading(
        published.dia.config,
        published.codec.config,
        dtype=name_of(chosen),
        backend=backend_name(target),
        free=free_bytes(target),
    )
    with torch.device("meta"):
        network = Dia(published.dia.config)
        dac = Dac(published.codec.config)
    return DiaPipeline(
        fill(network, published.dia, chosen, target),
        fill(dac, published.codec, torch.promote_types(chosen, torch.float32), target),
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
