"""Device and dtype policy: what the reference runs on, and in which precision, unless told."""

from __future__ import annotations

import logging
from typing import NamedTuple

import torch

from torch_ref.limits import backend_of
from torch_ref.limits.rule import Call
from torch_ref.limits.table import hits
from tts_core import models
from tts_core.errors import UsageError

DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}
NATIVE_BFLOAT16 = (8, 0)  # compute capability
_LOG = logging.getLogger("torch_ref")


class Precision(NamedTuple):
    """Where a model computes and in what: the one place that says so.

    dtype: of its language model's weights, and by that of caches, speaker vectors and all between layers.
    """

    device: torch.device
    dtype: torch.dtype

    @property
    def wide(self) -> torch.dtype:
        """Of what is never narrower than float32: norms, softmax, logits and sampling, and whole networks
        that are small or read waveforms.
        """
        return torch.promote_types(self.dtype, torch.float32)


def choose(device: str | None, dtype: str | None, model: str | None = None) -> Precision:
    """Device and dtype of a model, each as asked for, or the best that is there; logged in one line.

    model: its name, where its default dtype is its own. Raises UsageError as `choose_device` and
    `choose_dtype` do.
    """
    target = choose_device(device)
    chosen = choose_dtype(dtype, target, model)
    default, why = default_dtype(target, model)
    taken = "as asked" if device is not None else "the first of cuda, mps and cpu that is there"
    reason = why if dtype is None else f"as asked; {default} is the default: {why}"
    _LOG.info("device %s (%s), dtype %s (%s)", target, taken, name_of(chosen), reason)
    return Precision(target, chosen)


def choose_device(wanted: str | None) -> torch.device:
    """The device asked for; for None CUDA, then MPS, then the CPU, whichever is there first.

    Raises UsageError where the device asked for is not there.
    """
    if wanted is None:
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(wanted)
    except RuntimeError:
        raise UsageError(f"device: {wanted!r} is not a device; use cpu, cuda, cuda:N or mps") from None
    counts = {
        "cuda": lambda: torch.cuda.device_count() if torch.cuda.is_available() else 0,
        "mps": lambda: int(torch.backends.mps.is_available()),
        "cpu": lambda: 1,
    }
    if device.type not in counts or (device.index or 0) >= counts[device.type]():
        raise UsageError(
            f"device: {wanted} is not available on this machine; use cpu, or leave the choice to us"
        )
    return device


def choose_dtype(wanted: str | None, device: torch.device, model: str | None = None) -> torch.dtype:
    """The dtype asked for, by its name; for None the `default_dtype` of device and model.

    Raises UsageError for a name that is none, and for a dtype that the device's backend refuses by the table
    of torch_ref.limits. bfloat16 that a GPU only emulates is slow, not refused.
    """
    name = default_dtype(device, model)[0] if wanted is None else wanted
    if name not in DTYPES:
        raise UsageError(f"dtype: {name!r} is not one of {', '.join(DTYPES)}")
    backend = backend_of(device)
    if backend is not None:
        sample = torch.empty(0, dtype=DTYPES[name], device="meta")
        for rule, message in hits(Call("tensor", {"x": sample}, backend)):
            if rule.effect in ("error", "abort"):
                raise UsageError(f"dtype: {name} is not there on {backend} ({message}); {rule.remedy}")
    return DTYPES[name]


def default_dtype(device: torch.device, model: str | None = None) -> tuple[str, str]:
    """Name of the dtype that a model gets on a device where none is asked for, and why.

    On MPS the model's spec decides.
    """
    if device.type == "cuda":
        if torch.version.hip is not None:
            return "bfloat16", "every GPU that ROCm supports has it"
        major, minor = capability = torch.cuda.get_device_capability(device)
        if capability >= NATIVE_BFLOAT16:  # is_bf16_supported() says yes for emulation as well
            return "bfloat16", f"native at compute capability {major}.{minor}"
        return "float16", f"bfloat16 is only emulated at compute capability {major}.{minor}"
    if device.type == "mps" and model is not None:
        return models.model(model).on_mps
    if device.type == "mps":
        return "float32", "a float16 network may overflow; each model has its own default"
    return "float32", "few CPUs compute faster in half precision"


def name_of(dtype: torch.dtype) -> str:
    """ "float32" of torch.float32."""
    return str(dtype).removeprefix("torch.")
