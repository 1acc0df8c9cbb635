"""Check on MLX's CUDA backend what a CPU cannot show: the arithmetic by import order, and trials.

    python benchmarks/mlx_on_cuda.py [--only arithmetic|trials]

arithmetic   a product of 512 x 512 numbers against float64, in processes that import mlx_port first, MLX
             first, or MLX first with a product computed; with the user's MLX_ENABLE_TF32 and without it
trials       seconds that the trials of Dia in bfloat16 take in a chip's first process, and in the next; each
             kernel by itself, and a kernel without content as MLX compiles it; the first load and sentence
             of the embedded voice in bfloat16, with trials and as if all were known
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable

from benchmarks.lib.timing import arguments

PRODUCT = """
random = np.random.default_rng(0)
x, y = (random.normal(size=(512, 512)).astype(np.float32) for _ in range(2))
exact = x.astype(np.float64) @ y.astype(np.float64)
error = np.abs(np.array(mx.array(x) @ mx.array(y)) - exact).max() / np.abs(exact).max()
"""
ORDERS = {
    "mlx_port first": "import mlx_port, mlx.core as mx",
    "MLX first": "import mlx.core as mx, mlx_port",
    "MLX first, a product computed": "import mlx.core as mx\nmx.eval(mx.ones((64, 64)) @ mx.ones((64, 64)))\n"
    "import mlx_port",
}
SAID = (
    "from mlx_port.runtime.arithmetic import described; "
    "print(f'error {error:.1e} of the largest; {described()}')"
)
START = """
import time, sys, mlx_port, mlx.core as mx
mx.eval(mx.ones((64, 64), mx.bfloat16) @ mx.ones((64, 64), mx.bfloat16))
start = time.perf_counter()
"""
TRIALS = (
    START
    + """
from mlx_port.kernels import add_norm, attention_support, noise, rows, turn
from mlx_port.kernels.source import passes
half, found = mx.bfloat16, []
for trial in (
    (noise.trial,), (add_norm.trial, half, half, mx.float32, half), (turn.trial, half, False),
    (rows.trial, half), (attention_support.trial, half, 4, 128),
):
    began = time.perf_counter()
    found.append(f"{trial[0].__module__[17:]} {passes(*trial)} {time.perf_counter() - began:.2f}")
print(f"{time.perf_counter() - start:.2f} s:", *found)
"""
)
EMPTY = (
    START
    + """
code = "out[0] = x[0];"
made = mx.fast.cuda_kernel(name="empty", input_names=["x"], output_names=["out"], source=code)
mx.eval(made(inputs=[mx.ones(8)], template=[], grid=(1, 1, 1), threadgroup=(1, 1, 1), output_shapes=[(8,)],
             output_dtypes=[mx.float32]))
print(f"{time.perf_counter() - start:.2f} s")
"""
)
SPOKEN = (
    START
    + """
from mlx_port.kernels import results
if sys.argv[1] == "untried":
    results.known = lambda *_: True
pipeline = mlx_port.load(sys.argv[2], dtype="bfloat16")
loaded = time.perf_counter() - start
pipeline.generate("Hello, this is a sentence.", seed=1)
print(f"load {loaded:.2f} s, with the first sentence {time.perf_counter() - start:.2f} s")
"""
)


def run(program: str, environment: dict[str, str], *words: str) -> str:
    """The last line that a program prints."""
    command = [sys.executable, "-c", program, *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    return (done.stdout or done.stderr).strip().splitlines()[-1]


def arithmetic() -> None:
    for value in (None, "1", "0"):
        for name, order in ORDERS.items():
            environment = {key: text for key, text in os.environ.items() if key != "MLX_ENABLE_TF32"}
            if value is not None:
                environment["MLX_ENABLE_TF32"] = value
            said = run(f"import numpy as np\n{order}\n{PRODUCT}\n{SAID}", environment)
            print(f"MLX_ENABLE_TF32={value}, {name}: {said}", flush=True)


def fresh(folder: str) -> dict[str, str]:
    """Environment of a chip's first process: no results of trials, none of MLX's compiled operations."""
    return os.environ | {"XDG_CACHE_HOME": folder, "MLX_PTX_CACHE_DIR": f"{folder}/ptx"}


def trials() -> None:
    from mlx_port.stored_voice import converted_voice

    voice = str(converted_voice())
    for _ in range(2):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("first process", "next process"):
                print(f"trials, {name}: {run(TRIALS, fresh(folder))}", flush=True)
            print(f"an empty kernel of MLX's: {run(EMPTY, fresh(folder))}", flush=True)
    for way in ("tried", "untried", "untried", "tried"):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("first process", "next process"):
                print(f"{way}, {name}: {run(SPOKEN, fresh(folder), way, voice)}", flush=True)


def main() -> None:
    parser = arguments(__doc__)
    works: dict[str, Callable[[], None]] = {"arithmetic": arithmetic, "trials": trials}
    parser.add_argument("--only", choices=works)
    given = parser.parse_args()
    for name, work in works.items():
        if given.only in (None, name):
            work()


if __name__ == "__main__":
    main()
