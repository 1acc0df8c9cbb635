"""MARS5's pipelines from the golden checkpoints: published files for PyTorch, converted ones for MLX."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from tests.temporary import run_folder
from tests.tiny.published_models import MARS5, sources
from tests.tiny.recordings import snippet
from tts_core.prompt import Prompt

TEXT = "A small green kettle."
LONG = "The inn is near. Then it thins out. There it ends! A small green kettle."
SAID = "Then the rain came in."
CODES = np.random.default_rng(0).integers(0, 1024, (8, 9)).astype(np.int32)
SHORT = {"timesteps": 3, "generate_max_len_override": 30}  # the random network never ends by itself


@cache
def converted() -> Path:
    """A folder in our layout, for the whole run."""
    from converters.convert import convert
    from converters.published import open_published

    folder = run_folder("mars5") / "mars5"
    convert(open_published(sources("mars5")), folder, dtype="float32")
    return folder


@cache
def pipeline(side: str, dtype: Any = "float32") -> Any:
    """side: "torch" or "mlx"."""
    if side == "mlx":
        import mlx_port

        return mlx_port.load(converted(), dtype=dtype)
    import torch_ref

    return torch_ref.load(sources("mars5"), device="cpu", dtype=dtype)


@cache
def reference() -> np.ndarray:
    """(L,) samples whose codes are not near-ties."""
    return load_file(MARS5 / "tts_e2e.safetensors")["deep.ref_audio"]


def to_end(run: Any) -> np.ndarray:
    """Run a diffusion to its end. → (Q, S) int32."""
    while not run.done:
        run.step()
    return run.result()


def voice(*, said: str | None = None) -> Prompt:
    return snippet(reference(), said)


def limit(text: str, ids: int, said: str | None = None, codes: Any = CODES) -> int:
    """Length limit of the golden model that leaves room for `ids` drawn ids; codes: of a reference."""
    return room(pipeline("torch").engine.facts.vocabulary, text, ids, said=said, codes=codes)


def room(vocabulary: Any, text: str, ids: int, *, said: str | None = None, codes: Any = None) -> int:
    """Length limit that leaves room for `ids` drawn ids."""
    prompt = vocabulary.shallow(text) if said is None else vocabulary.deep(text, said, codes[0])
    return len(prompt.tokens) + ids
