"""Trace the path of a text through one `mlx-port generate` of each model, small and random.

    python benchmarks/text_path.py [--models dia,qwen3] [--backend mlx|torch] [--through-self] [--list]

A function counts once, at its first call, if an argument other than self has the text or what was made of it:
a string with a word of the text, an object or collection with one, or what a counted function returned. What
comes out of a network does not count: neither the sound and its results, nor functions of layers, codecs and
kernels. Methods that reach the text through self receive it only with --through-self. The path is those that
hand it on to another one, without the functions of tts_core/text, which read and write strings. A return is a
step of the path to a file that it was in before, and left. --list prints the path: file, line and name.

Python's profiler sees calls of Python only, so what a function of C made of the text counts once a counted
function returns it. The models are those of tests/contract.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
from timing import arguments

from tts_core import models
from tts_core.audio.files import write_audio
from tts_core.results import GenerationResult

TEXT = "Yesterday seventeen kettles whistled. Tomorrow nobody remembers kettles!"
ROOT = Path(__file__).parents[1]
WORDS = re.compile("yesterday|seventeen|kettles|whistled|tomorrow|nobody|remembers", re.IGNORECASE)
PACKAGES = tuple(f"{ROOT / name}{os.sep}" for name in ("tts_core", "mlx_port", "torch_ref"))
NETWORKS = re.compile(r"(mlx_port|torch_ref)/(layers|codecs|kernels|steps|cuda|limits|cpu|runtime)/")
TEXTS = re.compile("tts_core/text/")
DEPTH = 3  # of attributes and elements in which a text is looked for
VOICED = {"mars5": 1.0, "metavoice": 31.0, "qwen3": 2.0}  # seconds of the recording that a model needs


class TextPath:
    """The functions that received the text, in the order of their first calls."""

    def __init__(self, *, through_self: bool) -> None:
        self.skipped = {"cls"} if through_self else {"cls", "self"}
        self.found: dict[CodeType, None] = {}
        self.hands_on: set[CodeType] = set()
        self._made: dict[int, Any] = {}  # what they returned, kept so that no id is used again

    def __call__(self, frame: FrameType, event: str, value: Any) -> None:
        code = frame.f_code
        if event == "return" and code in self.found:
            self._keep(value)
        if event == "call" and code in self.found:
            self._handed(frame.f_back)
        if event != "call" or code in self.found or not code.co_filename.startswith(PACKAGES):
            return
        name = str(Path(code.co_filename).relative_to(ROOT))
        if code.co_name.startswith("<") or NETWORKS.match(name):
            return
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + (code.co_flags >> 2 & 1)]
        given = [frame.f_locals.get(one) for one in names if one not in self.skipped]
        if any(self._has(one, DEPTH) for one in given):
            self.found[code] = None
            self._handed(frame.f_back)

    def _handed(self, frame: FrameType | None) -> None:
        """Mark the nearest caller that was counted."""
        while frame is not None and frame.f_code not in self.found:
            frame = frame.f_back
        if frame is not None:
            self.hands_on.add(frame.f_code)

    def _keep(self, value: Any) -> None:
        if isinstance(value, (list, tuple, np.ndarray)) and len(value) > 1:
            self._made[id(value)] = value

    def _has(self, value: Any, depth: int) -> bool:
        if isinstance(value, str):
            return WORDS.search(value) is not None
        if id(value) in self._made:
            return True
        if depth == 0 or isinstance(
            value, (GenerationResult, type, int, float, np.ndarray, threading.Thread)
        ):
            return False
        return any(self._has(one, depth - 1) for one in inside(value))

    @property
    def path(self) -> list[tuple[str, CodeType]]:
        """Functions that hand it on, with their files."""
        named = [(str(Path(code.co_filename).relative_to(ROOT)), code) for code in self.found]
        return [(file, code) for file, code in named if code in self.hands_on and not TEXTS.match(file)]

    @property
    def returns(self) -> int:
        seen, last, count = set[str](), "", 0
        for file, _ in self.path:
            count += file != last and file in seen
            seen.add(file)
            last = file
        return count


def inside(value: Any) -> Iterable[Any]:
    """Elements of a collection, or fields of one of our objects."""
    if isinstance(value, dict):
        return [*value.values()]
    if isinstance(value, (list, tuple)):
        return value[:50]
    if not type(value).__module__.startswith(("tts_core", "mlx_port", "torch_ref")):
        return ()
    return [*fields(value)]


def fields(value: Any) -> Iterator[Any]:
    yield from getattr(value, "__dict__", {}).values()
    yield from (getattr(value, name, None) for name in getattr(type(value), "__slots__", ()))


def trace(model: str, backend: str, made: Path, *, through_self: bool) -> TextPath:
    """Run the command with a model and watch it."""
    sys.path.insert(0, str(ROOT))
    from mlx_port.commands.generate import generate
    from tests.contract.speakers import folder, speech

    flags = ["--model", str(folder(model)), "--backend", backend, "--seed", "1", "--quiet"]
    flags += ["--text", f"[S1] {TEXT}" if model == "dia" else TEXT, "--output", str(made / f"{model}.wav")]
    flags += ["--max-seconds", "0.2"]
    if model in VOICED:
        write_audio(made / "voice.wav", speech(VOICED[model], 24_000), 24_000)
        flags += ["--ref-audio", str(made / "voice.wav")]
    if model == "mars5":
        flags += ["--timesteps", "2"]
    path = TextPath(through_self=through_self)
    threading.setprofile(path)
    sys.setprofile(path)
    try:
        generate.main(flags, standalone_mode=False)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return path


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--models", default=",".join(models.NAMES))
    parser.add_argument("--backend", choices=("mlx", "torch"), default="mlx")
    parser.add_argument("--through-self", action="store_true")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as made:
        for model in args.models.split(","):
            path = trace(model, args.backend, Path(made), through_self=args.through_self)
            count = f"{len(path.path)} functions in {len({file for file, _ in path.path})} files"
            rest = f"{len(path.found)} with those that hand it on to none"
            print(f"{model}, {args.backend}: {count}, {path.returns} returns; {rest}", flush=True)
            for file, code in path.path if args.list else ():
                print(f"    {file}:{code.co_firstlineno} {code.co_qualname}")


if __name__ == "__main__":
    main()
