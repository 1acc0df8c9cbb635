"""Speech models in MLX, for Apple silicon; also on Linux with CPU or CUDA."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlx_port.runtime.arithmetic import choose
from mlx_port.runtime.before_mlx import load_before_mlx
from tts_core.exports import homes, public

if TYPE_CHECKING:
    from mlx_port.api import generate as generate
    from mlx_port.api import stream as stream
    from mlx_port.dia.pipeline import DiaPipeline as DiaPipeline
    from mlx_port.dia2.pipeline import Dia2Pipeline as Dia2Pipeline
    from mlx_port.mars5.pipeline import Mars5Pipeline as Mars5Pipeline
    from mlx_port.metavoice.pipeline import MetaVoicePipeline as MetaVoicePipeline
    from mlx_port.pipelines import load as load
    from mlx_port.qwen3.pipeline import Qwen3Pipeline as Qwen3Pipeline
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
    from tts_core.pipeline import Progress as Progress
    from tts_core.prompt import Prompt as Prompt
    from tts_core.prompt import Reference as Reference
    from tts_core.prompt import Word as Word
    from tts_core.qwen3.options import Qwen3Options as Qwen3Options
    from tts_core.results import GenerationResult as GenerationResult
    from tts_core.speaking.pipeline import Pipeline as Pipeline
    from tts_core.text.captions import Captions as Captions
    from tts_core.text.captions import Cue as Cue

__all__ = list(homes(__name__))  # pyright: ignore[reportUnsupportedDunderAll]

choose()
load_before_mlx()  # any module of this package may be the first to import it


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that importing the package loads no framework."""
    return public(__name__, name)


def __dir__() -> list[str]:
    return __all__
