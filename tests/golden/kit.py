"""Write the conformance kit: files with which a port in any language checks itself, without this project.

python -m tests.golden.kit OUT

Every model in small, with random weights: a converted folder, each layer's inputs, outputs and bound, and one
whole generation with its random numbers. The numbers come from `torch_ref`, which the golden vectors of the
original code hold to the originals. OUT/README.md, written from docs/use/kit.md, says how to use them.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file

import torch_ref
from converters.convert import convert
from converters.published import ModelPart, Published, open_published
from mlx_port.commands.verify.measure import measure
from mlx_port.commands.verify.watch import Side, side_of, trace
from tests.tiny import mars5, metavoice_pipeline
from tests.tiny.dia import write_published
from tests.tiny.dia2 import published_dia2
from tests.tiny.networks import published_dac_config, tiny
from tests.tiny.published_models import sources
from tests.tiny.qwen3 import write_published as published_qwen3
from torch_ref.watch import unloaded
from tts_core.nn.noise import HostNoise
from tts_core.nn.probe import InputSources, Probe, probes, sound
from tts_core.prompt import Prompt

PAGE = Path(__file__).parents[2] / "docs/use/kit.md"
ROWS, SECONDS, SEED = 12, 0.1, 1
Tensors = dict[str, np.ndarray]


@dataclass(frozen=True)
class Example:
    """A whole generation. ids: token ids that a piece of the text becomes, by name."""

    text: str
    options: Mapping[str, Any]
    ids: Callable[[Any], Tensors]
    prompt: Callable[[], Prompt | None] = lambda: None


def two_seconds() -> Prompt:
    """Return a sound that is no speech; random networks do not mind."""
    return Prompt.of(audio=sound(24_000, 48_000, SEED), sample_rate=24_000)


def recording(transcript: str | None) -> Prompt:
    """Return the same for Qwen3-TTS, at the rate of its small codec."""
    return Prompt.of(audio=sound(1500, 3000, SEED), text=transcript, sample_rate=1500)


def _laid_out(piece: Any) -> Tensors:
    """Return the ids of a piece of Qwen3-TTS, by position, and those that are read with the frames."""
    layout = piece.layout
    trailing = np.asarray(layout.trailing, np.int32)
    return {"text_ids": layout.text, "codec_ids": layout.codec, "trailing_ids": trailing}


def _words(piece: Any) -> np.ndarray:
    """Return the ids of all words of a piece of Dia2, in order."""
    return np.asarray([token for entry in piece.entries for token in entry.tokens], np.int32)


EXAMPLES = {
    "dia": Example(
        "[S1] Hello there. [S2] Oh, hello.", {"max_frames": 20}, lambda piece: {"ids": piece.tokens}
    ),
    "dia2": Example(
        "[S1] Hello there. [S2] Oh, hello.", {"max_frames": 20}, lambda piece: {"ids": _words(piece)}
    ),
    "mars5": Example(mars5.TEXT, mars5.SHORT, lambda piece: {"ids": piece.prompt.tokens}, two_seconds),
    "metavoice": Example(
        metavoice_pipeline.TEXT,
        {"max_frames": 12},
        lambda piece: {"first_ids": piece.first, "second_ids": piece.second},
        metavoice_pipeline.reference,
    ),
    "qwen3": Example("Hello there.", {"max_frames": 12}, _laid_out, lambda: recording(None)),
    "qwen3_continued": Example(
        "Hello there.", {"max_frames": 12}, _laid_out, lambda: recording("An inn is near.")
    ),
    "qwen3_custom_voice": Example(
        "Hello there.", {"max_frames": 12, "voice": "vivian", "instruct": "slow and warm"}, _laid_out
    ),
}
QWEN3 = {  # example → mode and size; the large ones have a projection before the predictor
    "qwen3": ("base", "0b6"),
    "qwen3_continued": ("base", "1b7"),
    "qwen3_custom_voice": ("custom_voice", "1b7"),
}
MODELS = {name: "qwen3" if name in QWEN3 else name for name in EXAMPLES}


class Recorded(HostNoise):
    """A seed's numbers, kept by their kind and step."""

    def __init__(self, seed: int):
        super().__init__(seed)
        self.drawn: Tensors = {}

    def uniform(self, step: int, shape: tuple[int, ...]) -> np.ndarray:
        return self._keep(f"noise.uniform.{step}", super().uniform(step, shape))

    def normal(self, row: int, shape: tuple[int, ...]) -> np.ndarray:
        return self._keep(f"noise.normal.{row}", super().normal(row, shape))

    def _keep(self, name: str, numbers: np.ndarray) -> np.ndarray:
        known = self.drawn.setdefault(name, numbers)
        assert known.shape == numbers.shape, f"{name} is drawn in two shapes"
        return numbers


def publish(name: str, folder: Path) -> Published:
    """Open the small published checkpoint of an example; a random one is written to `folder` first."""
    if name == "dia2":
        return open_published(published_dia2(folder), offline=True)
    if name in QWEN3:
        mode, size = QWEN3[name]
        return open_published(published_qwen3(folder / name, mode, size=size), offline=True)
    if name != "dia":
        return open_published(sources(name))
    weights = tiny("dia", seed=3, eos=1.3)
    return open_published(
        write_published(folder / "dia", weights, tiny(published_dac_config())), offline=True
    )


def layers(model: str, published: Published) -> tuple[Tensors, list[dict[str, Any]]]:
    """Watch every network in float64. Returns arrays, and the runs that list them in order."""
    parts = published.parts
    given = InputSources(
        {kind: part.config for kind, part in parts.items()},
        {kind: part.documents for kind, part in parts.items()},
        ROWS,
        SECONDS,
        SEED,
    )
    arrays: Tensors = {}
    runs = []
    for number, probe in enumerate(probes(model, given)):
        truth = trace(_side(probe, parts[probe.kind], "float64"))
        yardstick = trace(_side(probe, parts[probe.kind], "float32"), truth.outputs)
        values = {name: value for name, value in probe.inputs.items() if isinstance(value, np.ndarray)}
        arrays |= {f"{number}.in.{name}": _stored(value) for name, value in values.items()}
        rows = []
        for at, known, other in (
            ("", truth.outputs, yardstick.outputs),
            ("out", truth.results, yardstick.results),
        ):
            for name, calls in known.items():
                tensor = f"{number}.{at or 'row'}.{name}"
                arrays |= {f"{tensor}.{call}": _stored(value) for call, value in enumerate(calls)}
                rows.append(
                    {"name": name, "tensor": tensor, "calls": len(calls), "bound": _bound(calls, other[name])}
                )
        others = {name: value for name, value in probe.inputs.items() if name not in values}
        runs.append(
            {"part": probe.name, "kind": probe.kind, "inputs": [*values], "given": others, "rows": rows}
        )
    return arrays, runs


def example(name: str, folder: Path) -> tuple[Tensors, dict[str, Any]]:
    """Speak an example with recorded numbers. folder: converted. Returns arrays and facts."""
    made, noise = EXAMPLES[name], Recorded(SEED)
    pipeline = torch_ref.load(folder, device="cpu", dtype="float32")
    prompt = made.prompt()
    options = pipeline.request(made.text, _options(MODELS[name], made.options), prompt)
    result = pipeline.generate(made.text, prompt=prompt, noise=noise, **made.options)
    arrays = {kind: _stored(value) for kind, value in made.ids(options.pieces[0]).items()}
    if prompt is not None:
        arrays["reference"] = _stored(np.asarray(prompt.one.audio))
    arrays |= noise.drawn | {"codes": _stored(result.codes), "audio": _stored(result.audio)}
    facts = {
        "text": made.text,
        "options": dict(made.options),
        "sample_rate": result.sample_rate,
        "reference_sample_rate": result.sample_rate if prompt is not None else None,
        "reference_text": prompt.one.text if prompt is not None else None,
        "finish_reason": result.finish_reason,
        "token_count": result.token_count,
    }
    return arrays, facts


def write(out: Path, names: Sequence[str] = tuple(EXAMPLES), tell: Callable[[str], object] = print) -> None:
    """Write the kit of these examples into a folder that does not exist yet."""
    out.mkdir(parents=True)
    shutil.copy(PAGE, out / "README.md")
    for name in names:
        tell(name)
        with tempfile.TemporaryDirectory() as work:
            published = publish(name, Path(work))
            convert(published, out / name / "model", dtype="float32")
            arrays, runs = layers(MODELS[name], published)
        save_file(arrays, out / name / "layers.safetensors")
        _write_json(out / name / "layers.json", runs)
        arrays, facts = example(name, out / name / "model")
        save_file(arrays, out / name / "generation.safetensors")
        _write_json(out / name / "generation.json", facts)


def _options(model: str, changes: Mapping[str, Any]) -> Any:
    from tts_core.options import options_class

    return options_class(model)(**changes)


def _side(probe: Probe, part: ModelPart, dtype: str) -> Side:
    return side_of(probe, *unloaded(probe, part, dtype))


def _bound(truth: list[np.ndarray], yardstick: list[np.ndarray]) -> float:
    """Bound the absolute error of another float32 implementation (mlx_port.commands.verify.measure)."""
    return measure("", "", "float32", truth, yardstick, yardstick, True).bound


def _stored(value: np.ndarray) -> np.ndarray:
    kinds = {"f": np.float32, "i": np.int32, "u": np.int32}
    return np.ascontiguousarray(value, kinds.get(value.dtype.kind, value.dtype))


def _write_json(file: Path, value: Any) -> None:
    file.write_text(json.dumps(value, indent=1) + "\n", "utf-8")


def main() -> None:
    """Write the kit into the folder that the command names."""
    parser = argparse.ArgumentParser("python -m tests.golden.kit", description="Write the conformance kit.")
    parser.add_argument("out", metavar="OUT", type=Path, help="folder to write; it must not exist")
    out = parser.parse_args().out
    if out.exists():
        sys.exit(f"error: OUT: {out} exists; give another name")
    torch.set_num_threads(1)  # the networks are too small for more
    write(out)


if __name__ == "__main__":
    main()
