"""Trace the path of a text through one `mlx-port generate` of each model, small and random.

    python benchmarks/text_path.py [--models dia,qwen3] [--backend mlx|torch] [--list]

The path is what a reader opens who asks how a text comes to the network: the functions that receive it, or
what was made of it, and hand it on, from the command to the first launch of a running batch.

- A function receives what its arguments, or the object that it is a method of, have: a string with a word of
  the text, an object or collection with one, or what a function of the path returned. It counts once.
- It hands it on if it returns what was made of it, calls a network, or calls a function that hands it on. One
  that only looks (checks it, estimates its seconds, logs it) does not count.
- Rules for text (tts_core/text, and text, pieces, tokens and tokenizers of a model) are a box: only their
  functions that other files call count.
- Insides of networks, layers and kernels do not count, nor what happens to codes and sound after the launch.
- A reader goes from a function to the next one that it calls, and back to it for the next. A return is such a
  step, in the order of first calls, to a file that was read before, and left.

--list prints the path: file, line and name. Python's profiler sees calls of Python only: what a function of C
made of the text counts once a function of the path returns it. The models are those of tests/contract.
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

from benchmarks.lib.timing import arguments
from tts_core import models
from tts_core.audio.files import write_audio
from tts_core.results import GenerationResult

TEXT = "Yesterday seventeen kettles whistled. Tomorrow nobody remembers kettles!"
ROOT = Path(__file__).parents[1]
WORDS = re.compile("yesterday|seventeen|kettles|whistled|tomorrow|nobody|remembers", re.IGNORECASE)
PACKAGES = tuple(f"{ROOT / name}{os.sep}" for name in ("tts_core", "mlx_port", "torch_ref"))
NETWORKS = re.compile(r"(mlx_port|torch_ref)/(layers|codecs|kernels|steps|cuda|limits|cpu|runtime)/")
TEXTS = re.compile(r"tts_core/(text/|\w+/(text|pieces|reading|tokens|tokenizer)\.py)")
LAUNCH = re.compile(r"\w+/(\w+/)?(slots|batch)\.py")
DEPTH = 3  # of attributes and elements in which a text is looked for
VOICED = {"mars5": 1.0, "metavoice": 31.0, "qwen3": 2.0}  # seconds of the recording that a model needs


class TextPath:
    """The functions that received the text, in the order of their first calls."""

    def __init__(self) -> None:
        self.found: dict[CodeType, dict[CodeType, None]] = {}  # → its callers among them, in order
        self.ends: set[CodeType] = set()  # that return what was made of it, or call a network
        self.has_launched = False
        self._made: dict[int, Any] = {}  # what they returned, kept so that no id is used again

    def __call__(self, frame: FrameType, event: str, value: Any) -> None:
        code = frame.f_code
        if self.has_launched or not code.co_filename.startswith(PACKAGES):
            return
        if event == "return" and code in self.found:
            self._note(value)
            if self._has(value, DEPTH):
                self.ends.add(code)
        if event != "call" or code.co_name.startswith("<"):
            return
        name = located(code)
        self.has_launched = code.co_name == "launch" and LAUNCH.fullmatch(name) is not None
        caller = self._caller(frame.f_back)
        if NETWORKS.match(name):
            self.ends.update(() if caller is None else [caller])
            return
        if code not in self.found and not self._receives(frame):
            return
        callers = self.found.setdefault(code, {})
        if caller is not None:
            callers.setdefault(caller)

    def _receives(self, frame: FrameType) -> bool:
        code = frame.f_code
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + (code.co_flags >> 2 & 1)]
        return any(self._has(frame.f_locals.get(name), DEPTH) for name in names if name != "cls")

    def _caller(self, frame: FrameType | None) -> CodeType | None:
        """Find the nearest caller that received the text."""
        while frame is not None and frame.f_code not in self.found:
            frame = frame.f_back
        return None if frame is None else frame.f_code

    def _note(self, value: Any) -> None:
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
        return any(self._has(item, depth - 1) for item in inside(value))

    @property
    def path(self) -> list[tuple[str, CodeType]]:
        """Functions that hand it on, with their files."""
        on, after = set[CodeType](), [*self.ends]
        while after:
            code = after.pop()
            if code not in on:
                on.add(code)
                after += self.found[code]
        named = [(located(code), code) for code in self.found if code in on]
        return [(file, code) for file, code in named if not (TEXTS.match(file) and self._is_inner(code))]

    def _is_inner(self, code: CodeType) -> bool:
        callers = self.found[code]
        return bool(callers) and all(TEXTS.match(located(caller)) for caller in callers)

    @property
    def returns(self) -> int:
        seen, now, count = set[str](), "", 0
        for file, code in self.path:
            for step in (*(located(caller) for caller in [*self.found[code]][:1]), file):
                count += step != now and step in seen
                seen.add(step)
                now = step
        return count


def located(code: CodeType) -> str:
    """Path of a function's file in the project."""
    return os.path.relpath(code.co_filename, ROOT)


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


def trace(model: str, backend: str, made: Path) -> TextPath:
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
    path = TextPath()
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
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as made:
        for model in args.models.split(","):
            path = trace(model, args.backend, Path(made))
            count = f"{len(path.path)} functions in {len({file for file, _ in path.path})} files"
            print(f"{model}, {args.backend}: {count}, {path.returns} returns", flush=True)
            for file, code in path.path if args.list else ():
                print(f"    {file}:{code.co_firstlineno} {code.co_qualname}")


if __name__ == "__main__":
    main()
