"""Public names of both packages, and the modules that they are imported from on first use."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tts_core.models import NAMES

STEMS = {"metavoice": "MetaVoice"}  # of names of classes, where they are not the model's name, capitalized
SHARED = {
    "tts_core.audio.files": ("read_audio",),
    "tts_core.errors": (
        "CancelledError",
        "CheckpointError",
        "GenerationError",
        "NotFoundError",
        "ResourceError",
        "SpeechError",
        "UsageError",
    ),
    "tts_core.pipeline": ("Progress",),
    "tts_core.prompt": ("Prompt", "Reference", "Word"),
    "tts_core.results": ("GenerationResult",),
    "tts_core.speaking.pipeline": ("Pipeline",),
    "tts_core.text.captions": ("Captions", "Cue"),
}


def homes(side: str) -> dict[str, str]:
    """List a side's public names with their modules. side: "torch_ref" or "mlx_port"."""
    found = {name: module for module, names in SHARED.items() for name in names}
    found |= {"generate": f"{side}.api", "stream": f"{side}.api", "load": f"{side}.pipelines"}
    for model in NAMES:
        stem = STEMS.get(model, model.capitalize())
        found |= {
            f"{stem}Options": f"tts_core.{model}.options",
            f"{stem}Pipeline": f"{side}.{model}.pipeline",
        }
    return dict(sorted(found.items()))


def public(side: str, name: str) -> Any:
    """Import a public name of a side. Raises AttributeError for any other name."""
    home = homes(side).get(name)
    if home is None:
        raise AttributeError(f"module {side!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
