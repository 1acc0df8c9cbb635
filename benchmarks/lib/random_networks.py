"""Networks of every model with random weights, on either side, for benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module, metadata
from math import prod
from pathlib import Path
from typing import Any

from tts_core import models
from tts_core.memory.machine import Machine
from tts_core.shapes import mlx_axes

PACKAGES = {"torch": "torch_ref", "mlx": "mlx_port"}
MEMORY = {"torch": "torch_ref.device", "mlx": "mlx_port.runtime.memory"}  # functions of each side
Law = Callable[[str, tuple[int, ...]], tuple[float, float]]  # name, shape → mean, deviation
Edit = Callable[[str, Any], None]  # changes a tensor of that name in place


def usual(name: str, shape: tuple[int, ...]) -> tuple[float, float]:
    """Keep activations at the size of trained ones."""
    if len(shape) == 1:
        return 1, 0.1
    return 0, 0.5 if "embed" in name else prod(shape[1:]) ** -0.5


def dac_law(name: str, shape: tuple[int, ...]) -> tuple[float, float]:
    """Keep every layer's values of DAC near 1, and clip few samples."""
    if name.endswith(".alpha"):
        return 1, 0
    if len(shape) == 1:
        return 0, 0.05
    fed = shape[0] * 2 if ".conv_t1." in name else prod(shape[1:])
    return 0, fed**-0.5 * (0.3 if ".conv2." in name else 1)


def gpu() -> str:
    """PyTorch's device: CUDA if there is one."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def title(side: str, device: str = "cpu") -> str:
    """A side with its framework's version and device."""
    if side == "mlx":
        import mlx.core as mx

        return f"mlx_port {metadata.version('mlx')} {mx.default_device()}"
    import torch

    return f"torch_ref {torch.__version__} {torch.cuda.get_device_name() if device == 'cuda' else device}"


def tensors(
    side: str, kind: str, config: Any, dtype: str, *, device: str = "cpu", law: Law = usual,
    edit: Edit | None = None, prefix: str = "",
) -> Iterator[tuple[str, Any]]:  # fmt: skip
    """Draw weights on the device, without larger arrays beside them. kind: of tts_core.models.

    prefix: of the names to draw, which is removed.
    """
    about = models.network(kind)
    for name, shape in about.parameter_shapes(config).items():
        if not name.startswith(prefix):
            continue
        stored, (mean, deviation) = "float32" if about.stays_float32(name) else dtype, law(name, shape)
        if side == "torch":
            import torch

            value = torch.empty(shape, dtype=getattr(torch, stored), device=device).normal_(mean, deviation)
            if edit is not None:
                edit(name, value)
        else:
            import mlx.core as mx

            value = mx.random.normal(shape, getattr(mx, stored), loc=mean, scale=deviation)
            if edit is not None:
                edit(name, value)
            axes = mlx_axes(shape)
            value = value if axes is None else mx.contiguous(value.transpose(axes))
            mx.eval(value)
        yield name.removeprefix(prefix), value


def network(
    side: str, kind: str, config: Any, dtype: str, *, device: str = "cpu", law: Law = usual,
    edit: Edit | None = None,
) -> Any:  # fmt: skip
    """Build a network, ready to run. device: of PyTorch."""
    form = models.network_class(PACKAGES[side], kind)
    drawn = tensors(side, kind, config, dtype, device=device, law=law, edit=edit)
    if side == "torch":
        import torch

        with torch.device("meta"):
            made = form(config)
        torch.manual_seed(0)
        made.load_state_dict(dict(drawn), assign=True)
        return made.to(device).eval().requires_grad_(False)
    import mlx.core as mx

    made = form(config)
    mx.random.seed(0)
    for draw in drawn:
        made.load_weights([draw], strict=False)
    made.eval()
    mx.clear_cache()
    return made


class RandomParts:
    """Stand-in for the loaders' Parts. documents: of each kind."""

    def __init__(
        self, side: str, configs: dict[str, Any], documents: dict[str, dict[str, str]], dtype: str,
        device: str, *, law: Law = usual, edit: Edit | None = None,
    ):  # fmt: skip
        self.side, self.configs, self.documents, self.dtype_name = side, configs, documents, dtype
        self.law, self.edit, self.folder = law, edit, Path()
        self.device: Any = device
        if side == "torch":
            import torch

            self.device, self.dtype = torch.device(device), getattr(torch, dtype)

    def machine(self) -> Machine:
        """Describe the device, whose free memory is not known: loading refuses nothing."""
        where = [self.device] if self.side == "torch" else []
        backend = import_module(MEMORY[self.side]).backend_name(*where)
        return Machine(self.dtype_name, backend, None)

    def network(self, kind: str) -> Any:
        return network(
            self.side,
            kind,
            self.configs[kind],
            self.dtype_name,
            device=str(self.device),
            law=self.law,
            edit=self.edit,
        )
