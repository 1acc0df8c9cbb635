"""Work of `mlx-port generate` that is done once: files opened, parts planned, the request built."""

from __future__ import annotations

import builtins
import io
import os
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

pytest.importorskip("torch", reason="torch is not installed: the published pickles need it")
pytest.importorskip("mlx.core", reason="MLX is not installed")

from converters import part, search
from converters.files import readers
from mlx_port import stored
from mlx_port.commands import main as cli
from tests.conftest import Calls
from tests.tiny import mars5, metavoice_pipeline
from tts_core.dia import request as dia_request
from tts_core.mars5 import request as mars5_request
from tts_core.metavoice import request as metavoice_request

BACKENDS = pytest.mark.parametrize("backend", ["mlx", "torch"])
MODELS = {
    "dia": (dia_request, dia_request.DiaFacts, ["--max-seconds", "0.2"]),
    "mars5": (
        mars5_request,
        mars5_request.Mars5Facts,
        ["--timesteps", "2", "--generate-max-len-override", "40"],
    ),
    "metavoice": (metavoice_request, metavoice_request.MetaVoiceFacts, ["--max-seconds", "0.15"]),
}


@pytest.fixture(scope="module")
def folders(published: Path, converted: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Converted models by name, a published Dia, and voices."""
    root = tmp_path_factory.mktemp("models")
    voice = np.asarray(metavoice_pipeline.reference(31.0).one.audio)
    soundfile.write(root / "metavoice.wav", voice, metavoice_pipeline.RATE)
    soundfile.write(root / "mars5.wav", voice[: 2 * metavoice_pipeline.RATE], metavoice_pipeline.RATE)
    return {
        "published": published,
        "dia": converted,
        "mars5": mars5.converted(),
        "metavoice": metavoice_pipeline.write_model(root),
        "voices": root,
    }


def generate(
    folders: dict[str, Path], model: str, backend: str, output: Path, *, published: bool = False
) -> None:
    voice = folders["voices"] / f"{model}.wav"
    flags = ["--model", folders["published" if published else model], "--backend", backend, "-o", output]
    flags += ["--ref-audio", voice] if voice.exists() else []
    words = ["generate", "--text", "Hello there.", "--seed", "3", *MODELS[model][2], *flags]
    assert cli.run(list(map(str, words))) == 0


@BACKENDS
@pytest.mark.parametrize("model", MODELS)
def test_a_request_is_built_once(
    folders: dict[str, Path], model: str, backend: str, calls: Calls, tmp_path: Path
) -> None:
    """Each part is planned once, for the request and for loading."""
    request, facts, _ = MODELS[model]
    calls.watch(request, "read_voice")
    calls.watch(facts, "request")
    calls.watch(search, "open_part")
    calls.watch(part, "assigned")
    generate(folders, model, backend, tmp_path / "speech.wav")
    parts = len(list(folders[model].rglob("config.json"))) if backend == "torch" else 0
    assert calls == Counter(request=1, read_voice=1, open_part=parts, assigned=parts)


def opened(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count how often each file of a folder is opened from now on."""
    counts: Counter[str] = Counter()

    def watch(module: Any, name: str) -> None:
        original = getattr(module, name)

        def call(path: Any, *given: Any, **named: Any) -> Any:
            place = Path(os.fsdecode(path)) if isinstance(path, str | bytes | os.PathLike) else Path()
            if place.is_relative_to(folder):
                counts[place.relative_to(folder).as_posix()] += 1
            return original(path, *given, **named)

        monkeypatch.setattr(module, name, call)

    for module in (builtins, io, os):
        watch(module, "open")
    return counts


@BACKENDS
def test_a_folder_is_opened_once(
    folders: dict[str, Path], backend: str, calls: Calls, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The command reads the same as one `open_parts`: a published folder in torch, a converted one in MLX.

    The header of each weights file is read once.
    """
    published = backend == "torch"
    folder = folders["published" if published else "dia"]
    counts = opened(folder, monkeypatch)
    import_module("torch_ref.loading" if published else "mlx_port.loading").open_parts(folder)
    once = texts(counts)
    counts.clear()
    calls.watch(readers if published else stored, "read_header")
    generate(folders, "dia", backend, tmp_path / "speech.wav", published=published)
    assert texts(counts) == once
    assert {"config.json", "codec/config.json"} <= set(once)
    assert (
        calls == {"read_header": sum(name.endswith(".safetensors") for name in counts)} == {"read_header": 2}
    )


def texts(counts: Counter[str]) -> dict[str, int]:
    """Counts of the files that are not weights."""
    return {name: count for name, count in counts.items() if not name.endswith(".safetensors")}
