"""Dia captured, on kernels."""

from __future__ import annotations

from typing import Any

from torch_ref.codecs.dac import Dac, Snake1d
from torch_ref.cuda.codecs.windows import ReplayedDelayed
from torch_ref.cuda.dia.dac import FusedDac, KernelSnake1d
from torch_ref.cuda.dia.decoder import make_slots
from torch_ref.cuda.replayed import Replayed
from torch_ref.device import backend_name
from tts_core.codecs.dac_calls import most_fed


def forms(codec: Dac) -> dict[str, Any]:
    """Return what `torch_ref.dia.pipeline.compose` takes; the codec's Snake layers run on the kernel."""
    for name, layer in list(codec.named_modules()):
        if isinstance(layer, Snake1d):
            codec.set_submodule(name, KernelSnake1d(layer))
    backend = backend_name(codec.decoder.conv2.weight.device)
    decode = Replayed(
        FusedDac(codec),
        lambda: codec.precision,
        lambda shape: shape[0] * shape[2] <= most_fed(codec.config, codec.policy, backend=backend),
    )
    return {"make_slots": make_slots, "decode": decode, "decode_window": ReplayedDelayed(codec)}
