"""Networks that read each weight when a module uses it, so that the whole is never in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from converters.published import ModelPart
from torch_ref.device import DTYPES, tensor
from torch_ref.limits.remedies import at_least_float32
from tts_core.nn.probe import Framework, Probe


def framework(dtype: str) -> Framework:
    """PyTorch with a dtype: float32, float64, bfloat16 or float16."""

    def array(values: np.ndarray, like: Tensor | None = None) -> Tensor:
        made = tensor(values)
        kind = DTYPES[dtype] if like is None else like.dtype
        return made.to(kind) if made.is_floating_point() else made

    def host(value: Tensor) -> np.ndarray:
        return (at_least_float32(value) if value.is_floating_point() else value).numpy().copy()

    return Framework(torch.concatenate, array, host, lambda x: x.transpose(1, 2))


class _LazyWeights(dict[str, Any]):
    """The tensors of one module, read at each use; iterating gives empty ones of their shapes."""

    def __init__(self, empty: Mapping[str, Tensor | None], read: Callable[[str], Tensor]):
        super().__init__(empty)
        self._read = read

    def __getitem__(self, name: str) -> Tensor | None:
        return None if super().__getitem__(name) is None else self._read(name)


def unloaded(probe: Probe, part: ModelPart, dtype: str) -> tuple[nn.Module, Framework]:
    """Build a probe's network, which reads its tensors when they are used.

    dtype: of weights, as in `framework`; tensors that stay float32 in every folder are at least float32.
    """
    with torch.device("meta"):
        network = probe.network_class("torch_ref")(part.config).eval()
    wide = torch.promote_types(DTYPES[dtype], torch.float32)

    def kind(name: str) -> torch.dtype:
        return wide if part.stays_float32(name) else DTYPES[dtype]

    latest: dict[str, Tensor] = {}  # of one module

    def read(name: str) -> Tensor:
        if name not in latest:
            if latest and next(iter(latest)).rpartition(".")[0] != name.rpartition(".")[0]:
                latest.clear()
            latest[name] = tensor(part.read(name)).to(kind(name))
        return latest[name]

    for at, module in network.named_modules():
        empty = {
            name: None if value is None else torch.zeros((), dtype=kind(f"{at}.{name}")).expand(value.shape)
            for name, value in module._parameters.items()
        }
        vars(module)["_parameters"] = _LazyWeights(empty, lambda name, at=at: read(f"{at}.{name}"))
        if isinstance(module, nn.LSTM):
            module.__class__ = _lazy_lstm(type(module))
    return network, framework(dtype)


def _lazy_lstm(own: type) -> type:
    """Let torch's LSTM read its weights at each use; it keeps a list of them."""

    def read(self: Any) -> list[Tensor]:
        return [getattr(self, name) for name in self._flat_weights_names]

    return type(own.__name__, (own,), {"_flat_weights": property(read, lambda self, value: None)})
