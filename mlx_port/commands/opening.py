"""Choose and open the model that a command speaks with, on either side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from mlx_port.commands.loading_flags import Loading
from tts_core.config import Configs
from tts_core.errors import NotFoundError, UsageError, not_there
from tts_core.extras import install
from tts_core.models import MODELS, NAMES, published
from tts_core.options import info, options_class
from tts_core.printable import either
from tts_core.voice.embedded import CODEC, DIA

if TYPE_CHECKING:
    from tts_core.speaking.pipeline import Pipeline

INSTALL = {
    "mlx": f"MLX is not installed; on Linux {install('cpu')} (also cuda12, cuda13)",
    "torch": f"PyTorch is not installed; {install('torch')}",
}


def choose_options(model: str, given: Mapping[str, Any]) -> Any:
    """Build a model's options. Raises UsageError for a flag that the model lacks, listing its own."""
    kind = options_class(model)
    known = {field.name: info(field) for field in fields(kind)}
    for name in given:
        if name not in known:
            own = ", ".join(entry.flags[0] for entry in known.values() if entry.flags)
            flag = _flag(name)
            raise UsageError(f"{flag}: {model} takes no {flag}; it takes {own}")
    return kind(**{name: None if value == known[name].unset else value for name, value in given.items()})


def check_options(model: str | None, given: Mapping[str, Any]) -> None:
    """Check the options of a published model by its hub id, before its files are fetched."""
    if given and model is not None and not Path(model).expanduser().exists() and model in published():
        choose_options(published()[model][0], given)


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


def on_this_machine(model: str | None, loading: Loading) -> tuple[str | None, Loading]:
    """Return the path of a model, and how it is loaded from there; a hub id is fetched on first use.

    The path for MLX is that of the converted folder. model: None is the embedded voice, and stays None.
    Raises UsageError and NotFoundError, and what fetching and converting raise.
    """
    if model is None:
        for name in ("bits", "revision"):
            if getattr(loading, name) is not None:
                raise UsageError(f"{name}: the embedded voice has none; give a hub id with --model")
        return None, loading
    folder = Path(model).expanduser()
    if not folder.exists():
        from converters.files.hub import is_hub_id

        if model in NAMES:
            ids = either(MODELS[model].sizes)
            raise NotFoundError(f"model: {model} is a model's name; give a folder, or a hub id: {ids}")
        if not is_hub_id(model):
            raise not_there(
                "model", folder, "give a folder that convert-weights wrote, a hub id, or leave --model out"
            )
    local = _side(loading.backend, "from_hub").local_folder(
        folder if folder.exists() else model,
        dtype=loading.dtype,
        bits=loading.bits,
        revision=loading.revision,
        offline=loading.offline,
    )
    return str(local), replace(loading, bits=None, revision=None)


def open_model(model: str | None, loading: Loading) -> Opened:
    """Open the parts of the model on its backend's side, for the request and then for loading.

    model: a path; None opens the embedded voice. Weights are not read.
    """
    backend, dtype = loading.backend, loading.dtype
    open_parts = _side(backend).open_parts
    if backend == "torch":
        open_parts = partial(open_parts, codec_precision=loading.codec_precision, offline=loading.offline)
    if model is None and backend == "torch":
        return open_parts(DIA, codec=CODEC, dtype=dtype or "float32")
    if model is None:
        from mlx_port.stored_voice import converted_voice

        return open_parts(converted_voice(), dtype=dtype)
    return open_parts(Path(model), dtype=dtype)


def load_pipeline(parts: Opened, backend: Literal["mlx", "torch"]) -> Pipeline:
    """Load the weights of opened parts."""
    return _side(backend).assemble(parts)


def _side(backend: Literal["mlx", "torch"], module: str = "loading") -> Any:
    return import_module(f"{'mlx_port' if backend == 'mlx' else 'torch_ref'}.{module}")
