"""Clang with the sanitizers: builds a program from a kernel's text and runs it on a CPU."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
NAMES = ("clang++-19", "clang++")
LANGUAGE = ("-std=c++14", "-Wall", "-Werror", "-Wno-unknown-attributes", f"-I{HERE}")
SANITIZERS = ("-O1", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
RUN = (*LANGUAGE, *SANITIZERS)
LINK = ("--rtlib=compiler-rt",)  # libgcc before 13 has no conversion to bfloat
PROBE = """#include "metal.h"
void kernel_of(const At&, char* const* buffers) {
  const float x = *reinterpret_cast<const float*>(buffers[0]);
  const half a = static_cast<half>(x);
  const bfloat b = static_cast<bfloat>(x);
  *reinterpret_cast<float*>(buffers[1]) = static_cast<float>(a) + static_cast<float>(b);
}
"""


class Fault(AssertionError):
    """A text that does not compile, or a program that a sanitizer or run.cpp ended."""


@dataclass(frozen=True)
class Compiler:
    """A clang and the folder of what it builds."""

    name: str
    folder: Path

    def check(self, program: str) -> None:
        """Compile a program with address spaces as types. Raises Fault with clang's words."""
        self._run([*LANGUAGE, "-DSPACES", "-fsyntax-only", "-x", "c++", "-"], program)

    def build(self, program: str) -> Path:
        """Build a program, or return it if it was built before. Raises Fault with clang's words."""
        target = self.folder / hashlib.sha256(program.encode()).hexdigest()[:16]
        if not target.exists():
            threads = self.folder / "run.o"
            if not threads.exists():
                self._run([*RUN, "-c", str(HERE / "run.cpp"), "-o", str(threads)])
            self._run([*RUN, "-x", "c++", "-", "-x", "none", str(threads), *LINK, "-o", str(target)], program)
        return target

    def _run(self, arguments: Sequence[str], program: str = "") -> None:
        done = subprocess.run([self.name, *arguments], input=program, capture_output=True, text=True)
        if done.returncode:
            raise Fault(done.stderr[:3000])


def run(program: Path, request: bytes) -> bytes:
    """Run a program on a request of run.cpp and return its outputs. Raises Fault with its last words."""
    # wide zones, so that what is far outside an array is not inside another
    options = {"ASAN_OPTIONS": "redzone=2048:detect_leaks=0:detect_stack_use_after_return=0"}
    done = subprocess.run([str(program)], input=request, capture_output=True, env=os.environ | options)
    if done.returncode:
        raise Fault(done.stderr.decode(errors="replace")[:3000])
    return done.stdout


def find(folder: Path) -> Compiler | str:
    """Return the first clang that builds and runs a program, else why there is none."""
    if not sys.platform.startswith("linux"):
        return "metal_text: the fibers and sections of run.cpp are Linux's"
    reasons = []
    for name in NAMES:
        if shutil.which(name) is None:
            reasons.append(f"no {name}")
            continue
        compiler = Compiler(name, folder)
        try:
            compiler.build(PROBE)
        except Fault as fault:
            reasons.append(f"{name}: {str(fault).strip().splitlines()[-1]}")
            continue
        return compiler
    return f"metal_text: {'; '.join(reasons)}; install clang-19 and libclang-rt-19-dev"
