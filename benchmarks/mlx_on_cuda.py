"""Check on MLX's CUDA backend what a CPU cannot show: the arithmetic by import order, trials, kept memory.

    python benchmarks/mlx_on_cuda.py [--only arithmetic|trials|memory]

arithmetic   a product of 512 x 512 numbers against float64, in processes that import mlx_port first, MLX
             first, or MLX first with a product computed; with the user's MLX_ENABLE_TF32 and without it
trials       seconds that the trials of Dia in bfloat16 take in a chip's first process, and in the next; and
             each trial by itself, with its kernels' compilation and again
memory       texts of changing lengths by the embedded voice: time, and MLX's unused memory, with a quarter of
             the bound of mlx_port.runtime.memory, with the bound, and without
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

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
TRIALS = """
import time, mlx_port, mlx.core as mx
mx.eval(mx.ones((64, 64)) @ mx.ones((64, 64)))
from mlx_port.kernels import add_norm, attention, noise, rows, turn
from mlx_port.kernels.source import passes
half = mx.bfloat16
start = time.perf_counter()
found = [passes(noise.trial), passes(add_norm.trial, half, half, mx.float32, half)]
found += [passes(turn.trial, half, False), passes(rows.trial, half), passes(attention.trial, half, 4, 128)]
print(f"{time.perf_counter() - start:.2f} s, passed: {found}")
"""


def run(program: str, environment: dict[str, str]) -> str:
    """The last line that a program prints."""
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    return (done.stdout or done.stderr).strip().splitlines()[-1]


def arithmetic() -> None:
    for value in (None, "1", "0"):
        for name, order in ORDERS.items():
            environment = {key: text for key, text in os.environ.items() if key != "MLX_ENABLE_TF32"}
            if value is not None:
                environment["MLX_ENABLE_TF32"] = value
            said = run(f"import numpy as np\n{order}\n{PRODUCT}\n{SAID}", environment)
            print(f"MLX_ENABLE_TF32={value}, {name}: {said}", flush=True)


def trials() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in ("first process", "next process"):
            print(f"trials, {name}: {run(TRIALS, os.environ | {'XDG_CACHE_HOME': folder})}", flush=True)
    import mlx.core as mx

    from mlx_port.kernels import add_norm, attention, noise, rows, turn

    mx.eval(mx.ones((64, 64), mx.bfloat16) @ mx.ones((64, 64), mx.bfloat16))
    tried: dict[str, Callable[[], bool]] = {
        "noise": noise.trial,
        "add_norm": lambda: add_norm.trial(mx.bfloat16, mx.bfloat16, mx.float32, mx.bfloat16),
        "turn": lambda: turn.trial(mx.bfloat16, False),
        "rows": lambda: rows.trial(mx.bfloat16),
        "attention": lambda: attention.trial(mx.bfloat16, 4, 128),
    }
    for name, trial in tried.items():
        took = list[float]()
        for _ in range(2):
            start = time.perf_counter()
            trial()
            took.append(time.perf_counter() - start)
        print(f"{name}: {took[0]:.2f} s, again {took[1]:.2f} s", flush=True)


def memory() -> None:
    import mlx.core as mx

    from mlx_port.api import embedded_voice
    from mlx_port.runtime.memory import CACHED

    pipeline = embedded_voice()
    texts = [f"[S1] {'The small river runs slowly. ' * (1 + place % 7)}" for place in range(14)]
    pipeline.generate(texts[0], seed=0)
    for name, limit in 2 * (("a quarter", CACHED // 4), ("bound", CACHED), ("no bound", 1 << 40)):
        mx.set_cache_limit(limit)
        mx.clear_cache()
        start, most = time.perf_counter(), 0
        for seed, text in enumerate(texts):
            pipeline.generate(text, seed=seed)
            most = max(most, mx.get_cache_memory())
        print(f"{name}: {time.perf_counter() - start:.2f} s, unused memory up to {most / 1e6:.0f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    works = {"arithmetic": arithmetic, "trials": trials, "memory": memory}
    parser.add_argument("--only", choices=works)
    given = parser.parse_args()
    for name, work in works.items():
        if given.only in (None, name):
            work()


if __name__ == "__main__":
    main()
