"""The PyTorch reference: every network in plain PyTorch, with exact results on every device."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch_ref.api import generate as generate
    from torch_ref.api import stream as stream
    from torch_ref.dia.pipeline import DiaPipeline as DiaPipeline
    from torch_ref.dia2.pipeline import Dia2Pipeline as Dia2Pipeline
    from torch_ref.mars5.pipeline import Mars5Pipeline as Mars5Pipeline
    from torch_ref.metavoice.pipeline import MetaVoicePipeline as MetaVoicePipeline
    from torch_ref.pipelines import load as load
    from torch_ref.qwen3.pipeline import Qwen3Pipeline as Qwen3Pipeline
    from tts_core.audio.files import read_audio as read_audio
    from tts_core.dia.options import DiaOptions as DiaOptions
    from tts_core.dia2.options import Dia2Options as Dia2Options
    from tts_core.errors import (
        CancelledError as CancelledError,
    )
    from tts_core.errors import (
        CheckpointError as CheckpointError,
    )
    from tts_core.errors import (
        GenerationError as GenerationError,
    )
    from tts_core.errors import (
        NotFoundError as NotFoundError,
    )
    from tts_core.errors import (
        ResourceError as ResourceError,
    )
    from tts_core.errors import (
        SpeechError as SpeechError,
    )
    from tts_core.errors import (
        UsageError as UsageError,
    )
    from tts_core.mars5.options import Mars5Options as Mars5Options
    from tts_core.metavoice.options import MetaVoiceOptions as MetaVoiceOptions
    from tts_core.pipeline import Pipeline as Pipeline
    from tts_core.pipeline import Progress as Progress
    from tts_core.prompt import Prompt as Prompt
    from tts_core.prompt import Reference as Reference
    from tts_core.prompt import Word as Word
    from tts_core.qwen3.options import Qwen3Options as Qwen3Options
    from tts_core.results import GenerationResult as GenerationResult
    from tts_core.text.captions import Captions as Captions
    from tts_core.text.captions import Cue as Cue

_HOME = {
    "generate": "torch_ref.api",
    "stream": "torch_ref.api",
    "load": "torch_ref.pipelines",
    "DiaPipeline": "torch_ref.dia.pipeline",
    "Dia2Pipeline": "torch_ref.dia2.pipeline",
    "Mars5Pipeline": "torch_ref.mars5.pipeline",
    "MetaVoicePipeline": "torch_ref.metavoice.pipeline",
    "Qwen3Pipeline": "torch_ref.qwen3.pipeline",
    "DiaOptions": "tts_core.dia.options",
    "Dia2Options": "tts_core.dia2.options",
    "Mars5Options": "tts_core.mars5.options",
    "MetaVoiceOptions": "tts_core.metavoice.options",
    "Qwen3Options": "tts_core.qwen3.options",
    "GenerationResult": "tts_core.results",
    "Captions": "tts_core.text.captions",
    "Cue": "tts_core.text.captions",
    "Pipeline": "tts_core.pipeline",
    "Progress": "tts_core.pipeline",
    "Prompt": "tts_core.prompt",
    "Reference": "tts_core.prompt",
    "Word": "tts_core.prompt",
    "read_audio": "tts_core.audio.files",
    "SpeechError": "tts_core.errors",
    "UsageError": "tts_core.errors",
    "NotFoundError": "tts_core.errors",
    "CheckpointError": "tts_core.errors",
    "ResourceError": "tts_core.errors",
    "GenerationError": "tts_core.errors",
    "CancelledError": "tts_core.errors",
}
__all__ = [
    "CancelledError",
    "Captions",
    "CheckpointError",
    "Cue",
    "Dia2Options",
    "Dia2Pipeline",
    "DiaOptions",
    "DiaPipeline",
    "GenerationError",
    "GenerationResult",
    "Mars5Options",
    "Mars5Pipeline",
    "MetaVoiceOptions",
    "MetaVoicePipeline",
    "NotFoundError",
    "Pipeline",
    "Progress",
    "Prompt",
    "Qwen3Options",
    "Qwen3Pipeline",
    "Reference",
    "ResourceError",
    "SpeechError",
    "UsageError",
    "Word",
    "generate",
    "load",
    "read_audio",
    "stream",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that importing the package loads no framework."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
