"""Choose and open the model that a command speaks with, on either side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Protocol

from mlx_port.commands.loading_flags import Loading
from tts_core.config import Configs
from tts_core.errors import NotFoundError, UsageError, not_there
from tts_core.models import NAMES
from tts_core.models import model as model_of
from tts_core.options import info, options_class
from tts_core.pipeline import Pipeline
from tts_core.voice.embedded import CODEC, DIA

INSTALL = {
    "mlx": "MLX is not installed; pip install 'mlx-port[cpu]' on Linux (or [cuda12], [cuda13])",
    "torch": "PyTorch is not installed; pip install 'mlx-port[torch]'",
}


def choose_options(model: str, given: Mapping[str, Any]) -> Any:
    """Build a model's options. Raises UsageError for a flag that the model lacks, listing its own."""
    kind = options_class(model)
    known = {field.name: info(field) for field in fields(kind)}
    for name in given:
        if name not in known:
            own = ", ".join(each.flags[0] for each in known.values() if each.flags)
            flag = _flag(name)
            raise UsageError(f"{flag}: {model} takes no {flag}; it takes {own}")
    return kind(**{name: None if value == known[name].unset else value for name, value in given.items()})


def _flag(name: str) -> str:
    """Flag of an option, from the first model that has it."""
    every = (field for model in NAMES for field in fields(options_class(model)))
    return next(info(field).flags[0].partition("/")[0] for field in every if field.name == name)


def check_backend(backend: Literal["mlx", "torch"]) -> None:
    """Import the framework. Raises NotFoundError naming what to install."""
    try:
        import_module("mlx.core" if backend == "mlx" else "torch")
    except ImportError as error:
        raise NotFoundError(f"backend {backend}: {INSTALL[backend]} ({error})") from None


class Opened(Protocol):
    """A model's parts as either side's `open_parts` returns them."""

    model: str | None
    configs: Configs
    documents: Mapping[str, Mapping[str, str]]  # kind → name → text

    @property
    def codec_precision(self) -> str:
        """Precision of codecs' decoders."""
        ...


def open_model(model: str | None, loading: Loading) -> Opened:
    """Open the parts of the model on its backend's side, for the request and then for loading.

    Weights are not read. model: None opens the embedded voice.
    """
    backend, dtype = loading.backend, loading.dtype
    open_parts = _side(backend).open_parts
    if backend == "torch":
        open_parts = partial(open_parts, codec_precision=loading.codec_precision)
    if model is None and backend == "torch":
        return open_parts(DIA, codec=CODEC, dtype=dtype or "float32")
    if model is None:
        from mlx_port.stored_voice import converted_voice

        return open_parts(converted_voice(), dtype=dtype)
    folder, on_hub = Path(model).expanduser(), _looks_like_a_repository(model)
    if model in NAMES and not folder.exists():
        example = next(iter(model_of(model).sizes))
        raise NotFoundError(
            f"model: {model} is a model's name; convert its weights: convert-weights {example} NEW_FOLDER"
        )
    if not folder.exists() and not on_hub:
        raise not_there("model", folder, "give a folder that convert-weights wrote, or leave --model out")
    if backend == "torch":
        return open_parts(model, dtype=dtype)
    if on_hub:
        raise NotFoundError(
            f"model: no folder {model}; if it is a hub repository, convert it first: "
            f"convert-weights --hf-path {model} --mlx-path NEW_FOLDER"
        )
    return open_parts(folder, dtype=dtype)


def _looks_like_a_repository(model: str) -> bool:
    """Check for the form owner/name of a hub id whose owner is no local folder."""
    owner, _, name = model.partition("/")
    return bool(name) and "/" not in name and owner not in ("", ".", "..", "~") and not Path(owner).exists()


def load_pipeline(parts: Opened, backend: Literal["mlx", "torch"]) -> Pipeline:
    """Load the weights of opened parts."""
    return _side(backend).assemble(parts)


def _side(backend: Literal["mlx", "torch"]) -> Any:
    return import_module("mlx_port.loading" if backend == "mlx" else "torch_ref.loading")
