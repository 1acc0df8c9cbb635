"""Sources of MARS5 and MetaVoice that are incomplete or changed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from converters.published import open_published
from tests.converters.folders import write_safetensors
from tests.tiny.published_models import SOURCES, pickled
from tts_core.errors import SpeechError


def fails(kind: type[SpeechError], *parts: Any, **options: Any) -> str:
    """Open parts, which must fail with one line; return the line."""
    with pytest.raises(kind) as caught:
        open_published(*parts, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def without(model: str, *kinds: str) -> list[Path]:
    return [source for kind, source in SOURCES[model].items() if kind not in kinds]


def save(path: Path, source: Path, change: Callable[[Any], Any]) -> Path:
    """Save a changed pickle."""
    content = pickled(source)
    import torch

    torch.save(change(content) or content, path)
    return path


def resave(path: Path, change: dict[str, np.ndarray | None], metadata: dict[str, str], source: Path) -> Path:
    """Save changed safetensors with their JSON file."""
    held = {name: tensor for name, tensor in (load_file(source) | change).items() if tensor is not None}
    write_safetensors(path, held, __metadata__=metadata)
    shutil.copy(source.with_suffix(".json"), path.with_suffix(".json"))
    return path
