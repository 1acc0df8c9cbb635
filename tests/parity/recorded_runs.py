"""Runs whose codes and samples must not change, and the command that records them.

    python -m tests.parity.recorded_runs [MODEL...]

It rewrites tests/data/recorded. Run it only in a commit that renews the embedded voice or the small networks.
Every run goes through the public functions and folders converted here, with explicit limits, so that moving
code changes only the imports of this file.

A run is recorded only if MLX and PyTorch, in float32 and in float64, agree on its codes, and if its option
changes them. The file holds its codes, every 7th sample of the float64 run, the number of
samples, and the bound on their error that tests.tolerance derives from the float32 run.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from tests.sides import SIDES
from tests.temporary import run_folder
from tests.tiny import mars5 as mars5_pipelines
from tests.tiny import metavoice_pipeline
from tests.tiny.recordings import snippet
from tests.tolerance import bound
from tts_core.prompt import Prompt
from tts_core.results import GenerationResult

DATA = Path(__file__).parents[1] / "data" / "recorded"
STRIDE = 7  # divides no hop length, so samples of every phase are kept


@dataclass(frozen=True)
class Run:
    """One call: of `generate` for a text, of `generate_batch` for a list of texts.

    changes: an option that must matter: the run is recorded only if the codes differ without it.
    """

    text: str | list[str]
    options: Mapping[str, Any] = field(default_factory=dict)
    slow: bool = False
    changes: str | None = None

    @property
    def seeds(self) -> list[int]:
        seed = self.options["seed"]
        return seed if isinstance(seed, list) else [seed]


def speech(seconds: float, rate: int) -> np.ndarray:
    """Rising tone with overtones and a little noise, (L,) float32."""
    random, time = np.random.default_rng(0), np.arange(round(seconds * rate)) / rate
    phase = 2 * np.pi * (150 * time + 60 * time**2)
    tone = sum(np.sin(k * phase) / k for k in range(1, 6))
    swell = np.minimum(1, 20 * time) * np.minimum(1, 20 * time[::-1])
    return (0.2 * swell * tone + 0.01 * random.normal(size=len(time))).astype(np.float32)


def codes(books: int, entries: int, frames: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, entries, (books, frames)).astype(np.int32)


HELLO, SAID = "[S1] Hello, this is a voice made by a small network.", "[S1] Hello,"
TWO = "[S1] How are you today? [S2] Very well, thank you."
FOX = "[S2] The quick brown fox jumps over the lazy dog."
DIALOGUE = (
    "[S1] It rained all night. [S2] Then the sun came out. [S1] We went for a walk. [S2] I stayed at home."
)
HEARD = snippet(speech(0.4, 16_000), SAID)
READ = Prompt.of(codes=codes(8, 256, 6), text="[S2] So")


def fox(seed: int, changes: str, **options: Any) -> Run:
    """A short run of which one option matters."""
    return Run(FOX, {"seed": seed, "max_frames": 10, **options}, changes=changes)


DIA = {
    "plain": Run(HELLO, {"seed": 0, "max_frames": 40}),
    "to the end": Run("[S1] Yes!", {"seed": 1, "max_frames": 40}),
    "two speakers": Run(TWO, {"seed": 2, "max_frames": 12}),
    "other letters": Run(
        "[S1] Déjà vu. [S2] 東京 is far away.", {"seed": 3, "max_frames": 12, "as_written": True}
    ),
    "prompt of samples": Run("and goodbye.", {"seed": 4, "max_frames": 12, "prompt": HEARD}),
    "prompt of codes": Run("[S1] Good.", {"seed": 5, "max_frames": 12, "prompt": READ}),
    "guidance off": fox(6, "cfg_scale", cfg_scale=0.0, top_k=8),
    "more guidance": fox(7, "cfg_scale", cfg_scale=5.0, top_k=8),
    "greedy": fox(8, "temperature", temperature=0.0),
    "temperature": fox(9, "temperature", temperature=1.1),
    "top_p": fox(10, "top_p", top_p=0.4),
    "top_k": fox(11, "top_k", top_k=4),
    "pieces": Run(
        "[S1] Yes! [S2] No, not now. [S1] Good night.",
        {"seed": 12, "max_frames": 32, "piece_seconds": 1.0, "as_written": True},
        changes="piece_seconds",
    ),
    "batch": Run(
        [HELLO, TWO, FOX, "goodbye.", "[S1] No.", "[S2] Hello."],
        {
            "seed": [*range(13, 19)],
            "max_frames": [6, 10, 3, 8, 10, 10],
            "prompts": [None, None, None, HEARD, READ, None],
        },
        changes="prompts",
    ),
    "greedy batch without guidance": Run(
        [TWO, FOX], {"seed": [19, 20], "max_frames": 8, "temperature": 0.0, "cfg_scale": 0.0}
    ),
    "long": Run(HELLO, {"seed": 21, "max_frames": 200}, slow=True),
    "long with two speakers": Run(TWO, {"seed": 22, "max_frames": 200}, slow=True),
    "long after a prompt": Run(
        "and the quick brown fox.", {"seed": 23, "max_frames": 120, "prompt": HEARD}, slow=True
    ),
    "long in pieces": Run(DIALOGUE, {"seed": 24, "max_frames": 400, "piece_seconds": 3.0}, slow=True),
}

KETTLE, INN = "A small green kettle.", "The inn is near. Then it thins out."
FAST = {"timesteps": 3, "generate_max_len_override": 30}
VOICE = Prompt.of(codes=codes(8, 1024, 9, seed=1))
DEEP = Prompt.of(codes=codes(8, 1024, 9, seed=2), text="Then the rain came in.")
RECORDING = speech(0.2, 24_000)
SPOKE = snippet(RECORDING, "Then it thins.")


def mars5(seed: int, changes: str | None = None, *, text: str = KETTLE, **options: Any) -> Run:
    """A fast run, in VOICE unless a prompt is given."""
    return Run(text, {**FAST, "seed": seed, "prompt": VOICE, **options}, changes=changes)


MARS5 = {
    "shallow": mars5(0),
    "deep": mars5(1, prompt=DEEP, generate_max_len_override=52),
    "shallow of samples": mars5(2, prompt=snippet(RECORDING)),
    "deep of samples": mars5(3, prompt=SPOKE, generate_max_len_override=50),
    "shallow in spite of a transcript": mars5(4, "deep_clone", prompt=DEEP, deep_clone=False),
    "guidance off": mars5(5, "cfg_scale", cfg_scale=1.0),
    "greedy": mars5(6, "temperature", temperature=0.0),
    "temperature": mars5(7, "temperature", temperature=1.4),
    "top_p": mars5(8, "top_p", top_p=0.9),
    "top_k": mars5(9, "top_k", top_k=2),
    "typical_p": mars5(10, "typical_p", typical_p=0.3, top_p=1.0),
    "penalties": mars5(11, "freq_penalty", freq_penalty=-6.0, presence_penalty=-4.0, top_p=0.9),
    "temperature of the diffusion": mars5(12, "x_0_temp", x_0_temp=1.3),
    "more steps": mars5(13, timesteps=12),
    "one number a class": mars5(14, "draws", draws="per class"),
    "pieces": mars5(15, "piece_seconds", text=INN, piece_seconds=1.4, generate_max_len_override=32),
    "numbers in words": mars5(16, text="12 inns."),
    "numbers as written": mars5(17, "as_written", text="12 inns.", as_written=True),
    "batch": Run(
        [KETTLE, "The inn.", INN],
        {**FAST, "seed": [18, 19, 20], "prompts": [VOICE, DEEP, VOICE], "generate_max_len_override": 42},
    ),
    "trimmed": mars5(24, trim_db=0.5),
    "all steps": Run(KETTLE, {"seed": 21, "prompt": VOICE, "generate_max_len_override": 40}, slow=True),
    "all steps, deep": Run(KETTLE, {"seed": 22, "prompt": DEEP, "generate_max_len_override": 90}, slow=True),
    "long": Run(
        KETTLE,
        {"seed": 23, "prompt": VOICE, "timesteps": 20, "generate_max_len_override": 200},
        slow=True,
    ),
}

CUT = 13 / 15  # at 15 characters per second
SPOKEN, THREE = "Hello there.", "Hello there. It is late. Who are you?"


def vector(seed: int) -> np.ndarray:
    """Speaker vector (E,) float32 of norm 1, of the small networks' size."""
    made = np.random.default_rng(seed).normal(size=32)
    return (made / np.linalg.norm(made)).astype(np.float32)


FIRST, SECOND = vector(1), vector(2)
CUT_BATCH = {"prompts": [FIRST, SECOND, FIRST], "piece_seconds": CUT}


def metavoice(seed: int, changes: str | None = None, *, text: str = SPOKEN, **options: Any) -> Run:
    """A run of at most 14 frames in the first voice, unless options say otherwise."""
    return Run(text, {"seed": seed, "max_frames": 14, "prompt": FIRST, **options}, changes=changes)


METAVOICE = {
    "plain": metavoice(0, max_frames=52),  # long enough for a loudness
    "other voice": metavoice(1, prompt=SECOND),
    "voice of samples": metavoice(2, max_frames=8, prompt=Prompt.of(audio=speech(31.0, 24_000))),
    "guidance off": metavoice(3, "cfg_scale", cfg_scale=1.0),
    "less guidance": metavoice(4, "cfg_scale", cfg_scale=1.5),
    "guidance on speaker and text": metavoice(5, "cfg_scale", cfg_scale=(2.0, 1.5)),
    "guidance on the text alone": metavoice(6, "cfg_scale", cfg_scale=(1.0, 2.0)),
    "greedy": metavoice(7, "temperature", temperature=0.0),
    "temperature": metavoice(8, "temperature", temperature=0.7),
    "top_p": metavoice(9, "top_p", top_p=0.5),
    "top_k": metavoice(110, "top_k", top_k=5),
    "multi-band diffusion": metavoice(11, max_frames=52, decoder="mbd"),
    "pieces": metavoice(12, text=THREE, max_frames=24, piece_seconds=CUT),
    "pieces by multi-band diffusion": metavoice(
        13, text=THREE, max_frames=20, prompt=SECOND, piece_seconds=CUT, decoder="mbd"
    ),
    "numbers in words": metavoice(14, text="12 of them", max_frames=10),
    "numbers as written": metavoice(15, "as_written", text="12 of them", max_frames=10, as_written=True),
    "batch": Run(
        [SPOKEN, THREE, "Who are you?"], {"seed": [16, 17, 18], "max_frames": [12, 20, 6], **CUT_BATCH}
    ),
    "greedy batch by multi-band diffusion": Run(
        [SPOKEN, "It is late."],
        {"seed": [19, 20], "max_frames": 6, "prompts": FIRST, "temperature": 0.0, "decoder": "mbd"},
    ),
    "window": Run(THREE, {"seed": 21, "max_frames": 75, "prompt": FIRST}, slow=True),
}

RUNS = {"dia": DIA, "mars5": MARS5, "metavoice": METAVOICE}


@cache
def folder(model: str) -> Path:
    """Folder of a small model, as convert-weights writes it."""
    if model == "mars5":
        return mars5_pipelines.converted()
    if model == "dia":
        return embedded_with_recordings()
    return metavoice_pipeline.write_model(run_folder("recorded"))


def embedded_with_recordings() -> Path:
    """Convert the embedded voice as a Dia that takes recordings: it does not say whose voices it has."""
    from converters.convert import convert
    from converters.published import open_published
    from tts_core.voice.embedded import CODEC, DIA

    made = run_folder("recorded")
    shutil.copytree(DIA, made / "dia")
    config = json.loads((made / "dia/config.json").read_text())
    del config["own_speakers"]
    (made / "dia/config.json").write_text(json.dumps(config))
    convert(open_published(made / "dia", codec=CODEC), made / "model", dtype="float32")
    return made / "model"


@cache
def pipeline(side: str, model: str) -> Any:
    """Loaded model: the embedded voice's weights, or small ones. side: torch, float64 or mlx."""
    if side == "float64":
        import torch_ref

        return torch_ref.load(folder(model), device="cpu", dtype="float64")
    return import_module(SIDES[side]).load(folder(model))


def speak(
    side: str, model: str, run: Run, options: Mapping[str, Any] | None = None
) -> list[GenerationResult]:
    """Results of a run, one per text. options: replace the run's own."""
    given = run.options if options is None else options
    if not isinstance(run.text, str):
        return pipeline(side, model).generate_batch(run.text, **given)
    if side == "float64":
        return [pipeline(side, model).generate(run.text, **given)]
    embedded = model == "dia" and given.get("prompt") is None
    door = import_module(SIDES[side]).generate
    return [door(run.text, None if embedded else pipeline(side, model), **given)]


def file_of(model: str, *, slow: bool) -> Path:
    return DATA / f"{model}{'_slow' if slow else ''}.safetensors"


@cache
def recorded(file: Path) -> dict[str, np.ndarray]:
    """Recorded tensors by "run/place/name", where the name is codes (Q, T), samples, length or bound."""
    return load_file(file)


def record(model: str, *, slow: bool) -> None:
    """Write the file of a model's runs.

    Raises AssertionError for a run that rounding decides, and for one whose option changes nothing.
    """
    tensors: dict[str, np.ndarray] = {}
    for name, run in RUNS[model].items():
        if run.slow is not slow:
            continue
        by_side = {side: speak(side, model, run) for side in ("float64", *SIDES)}
        for place, (truth, known, other) in enumerate(zip(*by_side.values(), strict=True)):
            at = f"{name}/{place}"
            for result in (known, other):
                assert np.array_equal(result.codes, truth.codes), (
                    f"{model}, {at}: rounding decides; take another seed"
                )
            assert truth.codes.size, f"{model}, {at}: no frame"
            oracle = truth.audio.astype(np.float64)
            print(f"{model}, {at}: {truth.codes.shape[1]} frames, {truth.samples} samples")
            # safetensors writes memory without regard to strides
            tensors[f"{at}/codes"] = truth.codes.astype(np.int16, order="C")
            tensors[f"{at}/samples"] = truth.audio[::STRIDE].astype(np.float32)
            tensors[f"{at}/length"] = np.array(truth.samples, np.int32)
            tensors[f"{at}/bound"] = np.array(bound(known.audio, oracle), np.float64)
        if run.changes is not None:
            fewer = {key: value for key, value in run.options.items() if key != run.changes}
            others = speak("torch", model, run, fewer)
            same = [np.array_equal(a.codes, b.codes) for a, b in zip(others, by_side["torch"], strict=True)]
            assert not all(same), f"{model}, {name}: {run.changes} changes nothing; take another seed"
    DATA.mkdir(exist_ok=True)
    save_file(tensors, file_of(model, slow=slow))


def main() -> None:
    for model in sys.argv[1:] or RUNS:
        for slow in (False, True):
            record(model, slow=slow)


if __name__ == "__main__":
    os.environ["MLX_ENABLE_TF32"] = "0"  # read when MLX is imported
    with tempfile.TemporaryDirectory() as cache_folder:
        os.environ["XDG_CACHE_HOME"] = cache_folder  # the embedded voice is converted again
        main()
