"""Lines of Python in the packages by concern, and the upper bound of each in tests/weight.txt.

    python -m tests.weight            # today's lines, bounds and files without a concern
    python -m tests.weight --write    # make today's lines the bounds

A bound is only ever lowered, or raised in the commit that says why.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
BOUNDS = Path(__file__).with_suffix(".txt")
PACKAGES = ("tts_core", "torch_ref", "mlx_port", "converters")
SESSIONS, TEXT = "sessions, engines, slots, runs", "text live input"
CUDA, MLX = "CUDA captured steps and Triton", "MLX fused steps and kernels"
SPEAKING = (SESSIONS, TEXT, CUDA, MLX)
# concern → paths; the first that fits counts
PATTERNS: tuple[tuple[str, str], ...] = (
    (
        "memory estimation",
        r"tts_core/(memory/\w+|\w+/footprint|codecs/memory)\.py"
        r"|mlx_port/commands/estimate\.py",
    ),
    (
        "verify: ladders, layer orders, command",
        r"tts_core/(\w+/(ladder|layer_order|layers|probes)|codecs/\w+_layers|nn/probe)\.py"
        r"|(mlx_port|torch_ref)/watch\.py|mlx_port/commands/(verify/.*|page\.py)",
    ),
    ("bench command (load, cases)", r"mlx_port/commands/bench/.*|tts_core/(\w+/)?speed\.py"),
    ("MPS limits, emulator, remedies", r"torch_ref/(limits/(?!independent)|integrations/).*"),
    (
        "exact rows on CPU (independence)",
        r"torch_ref/(limits/independent\.py|cpu/.*)|tts_core/nn/row_calls\.py"
        r"|mlx_port/(steps/(rows|row_blocks|row_keys|splitting)|runtime/blas)\.py",
    ),
    (CUDA, r"torch_ref/cuda/.*"),
    (MLX, r"mlx_port/((steps|kernels)/.*|\w+/one_row\.py)"),
    (
        TEXT,
        r"tts_core/(live/.*|serving/live_session\.py|text/arriving\.py|(qwen3/live|dia2/arriving|dia/dialogue)"
        r"\.py|speaking/live\.py|speech/(fed|fed_session)\.py)|mlx_port/commands/serve/(live|wyoming)/.*",
    ),
    (
        "captions, pauses, speed, sound of pieces",
        r"tts_core/(text/(captions|breaks)|audio/(delivery|joining|stretch|turn_ends|silence|loudness))\.py",
    ),
    (
        "server and page",
        r"mlx_port/commands/(serve/.*|voices\.py)"
        r"|tts_core/serving/(engine|shelf|source|speech|statistics|voices)\.py",
    ),
    ("bulk", r"tts_core/(bulk/.*|processes\.py)|mlx_port/commands/batch/.*"),
    ("judges", r"tts_core/judges/.*|mlx_port/commands/judge\w*\.py"),
    ("hostile-file guards", r"tts_core/(files/.*|printable\.py)|converters/files/(pickles|plain)\.py"),
    ("converter: search, plan, writing", r"converters/(?!maps/).*"),
    (
        "configuration, shapes, specs, maps",
        r"tts_core/(\w+/(config|model)|config|models|shapes|qwen3/speaker)\.py"
        r"|tts_core/codecs/(dac|encodec|mbd|mimi|vocos|qwen3_codec)\.py|converters/maps/.*",
    ),
    (
        "options and typed doors",
        r"tts_core/((\w+/)?options|doors|exports)\.py|mlx_port/commands/(model|loading)_flags\.py"
        r"|(mlx_port|torch_ref)/(api|pipelines|__init__)\.py",
    ),
    (
        SESSIONS,
        r"tts_core/(speaking|speech)/.*|tts_core/serving/(session|slot_session|sounding|turns)\.py"
        r"|tts_core/\w+/(session|engine|rows|slots|run|speaking|speech|net|together|long_text|inputs|joining"
        r"|pipeline|grid|sequence|machine|prefix|decoding|codes|layout|diffusion|sampling|schedule|class_hash)\.py"
        r"|tts_core/(pipeline|results|sampling)\.py"
        r"|tts_core/(nn/(host|calls|beside|guard|noise|sampling|sentinels)|codecs/(\w+_calls|dac_streams|policy|mbd_schedule))\.py"
        r"|(torch_ref|mlx_port)/(\w+/)?(slots|together|pipeline|guard|guidance|reverse|diffusion|class_numbers"
        r"|codes|sampling|decoder|batch|running|settings|draws?|host|reading|watch)\.py",
    ),
    (
        "text rules, tokenizers, requests, pieces",
        r"tts_core/(text/.*|prompt\.py|\w+/(request|text|pieces|reading|script|tokenizer|tokens|voice|reference"
        r"|recordings)\.py)",
    ),
    (
        "networks and layers",
        r"(torch_ref|mlx_port)/(layers|codecs|dia|dia2|mars5|metavoice|qwen3)/.*"
        r"|tts_core/(nn/(attention|packed|positions|windows)|audio/(bands|mel|speaker_slices))\.py",
    ),
    (
        "CLI generate, main, doctor, runner",
        r"mlx_port/commands/.*|tts_core/(command/.*|extras\.py)|(mlx_port|torch_ref)/doctor\.py",
    ),
    (
        "loading and devices",
        r"(torch_ref|mlx_port)/(loading|stored\w*|device|from_hub)\.py|mlx_port/runtime/.*|tts_core/voice/.*",
    ),
    ("audio files and formats", r"tts_core/audio/.*"),
    ("errors", r"tts_core/errors\.py"),
)
REST = "(rest)"  # must be empty


def files() -> Iterator[tuple[str, str, int]]:
    """Yield concern, path and lines of each file but empty `__init__.py`."""
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            path, lines = file.relative_to(ROOT).as_posix(), file.read_text("utf-8").count("\n")
            if file.name != "__init__.py" or lines > 2:
                fitting = (concern for concern, paths in PATTERNS if re.fullmatch(paths, path))
                yield next(fitting, REST), path, lines


def weights() -> Counter[str]:
    """Count the lines of each concern."""
    found = Counter({concern: 0 for concern, _ in PATTERNS})
    for concern, _, lines in files():
        found[concern] += lines
    return found


def bounds() -> dict[str, int]:
    """Read the upper bounds."""
    rows = [line.split(maxsplit=1) for line in BOUNDS.read_text("utf-8").splitlines()]
    return {concern: int(lines) for lines, concern in rows}


def table() -> str:
    """Format today's lines beside the bounds, and name files without a concern."""
    found, held = weights(), bounds()
    rows = [f"{lines:6} {held.get(concern, 0):6} {concern}" for concern, lines in found.most_common()]
    speaking = sum(found[concern] for concern in (*SPEAKING, REST))
    rows += [f"{sum(found.values()):6} {sum(held.values()):6} all"]
    rows += [f"{speaking:6}        sessions, live text, steps of both sides and {REST}"]
    return "\n".join([*rows, *(f"{REST} {path}" for concern, path, _ in files() if concern == REST)])


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        lines = [f"{lines:6} {concern}\n" for concern, lines in weights().most_common() if concern != REST]
        BOUNDS.write_text("".join(lines), "utf-8")
    print(table())
