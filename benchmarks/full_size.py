"""A full-size (1.6 B) random Dia all the way: plan, conversion, and one decoder step of each side against
float64.

    python benchmarks/full_size.py [--folder DIR] [--kind safetensors|pth]

Each side runs in a process of its own, one after another; float64 takes 13 GB of memory. DIR needs 20 GB (26
for pth). Exits with 1 where mlx_port's error is over 16 times torch_ref's own float32 error plus 4 units in
the last place of the largest logit.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from checkpoints import make_checkpoint
from convert import measure

TEXT = "[S1] One decoder step at full size. [S2] Then another one."
ROWS = 2


def logits(side: str, folder: str, dtype: str) -> tuple[np.ndarray, float, float]:
    """(logits of ROWS rows, both branches; seconds to load; seconds per step)."""
    begin = time.perf_counter()
    if side == "torch":
        import torch

        from torch_ref.loading import load

        network: Any = load(folder, dtype=dtype, device="cpu").network
        array, host, last = torch.from_numpy, lambda x: x.detach().numpy(), torch.inference_mode()
    else:
        import contextlib

        import mlx.core as mx

        from mlx_port.loading import load

        mx.set_default_device(mx.Device(mx.cpu))
        network = load(folder, dtype=dtype).network
        array, host, last = mx.array, np.array, contextlib.nullcontext()
    from tts_core.tokenizer import tokenize

    loaded = time.perf_counter() - begin
    config = network.config
    rng = np.random.default_rng(0)
    rows = rng.integers(0, config.eos_token_id, (1, ROWS, config.decoder_config.num_channels), np.int32)
    rows[:, 0] = config.bos_token_id
    out, times = [], []
    with last:
        source = network.read([array(tokenize(TEXT))], network.encode_nothing())
        cache = network.new_cache()
        for row in range(ROWS):
            begin = time.perf_counter()
            tokens = array(np.concatenate([rows[:, row : row + 1]] * 2))
            out.append(host(network.next_logits(tokens, cache, source)))
            times.append(time.perf_counter() - begin)
    return np.stack(out), loaded, times[-1]


def run(side: str, folder: Path, dtype: str, out: Path) -> np.ndarray:
    """`logits` in a process of its own; prints its times."""
    command = [sys.executable, __file__, "--step", side, str(folder), dtype, str(out)]
    subprocess.run(command, check=True, env={**os.environ, "MLX_ENABLE_TF32": "0"})
    return np.load(out).astype(np.float64)


def step(arguments: list[str]) -> None:
    side, folder, dtype, out = arguments
    values, loaded, seconds = logits(side, folder, dtype)
    np.save(out, values)
    print(f"{side:>5} {dtype}: loaded in {loaded:.1f} s, a step in {seconds:.2f} s", flush=True)


def bench(folder: Path, kind: str) -> bool:
    with tempfile.TemporaryDirectory(dir=folder, prefix="full-size-") as name:
        source, made = Path(name) / "source", Path(name) / "made"
        make_checkpoint(source, "dia", kind)
        base = [sys.executable, "-m", "converters.cli", "--hf-path", str(source), "--mlx-path", str(made)]
        begin = time.perf_counter()
        plan = json.loads(subprocess.check_output([*base, "--dry-run", "--json"]))
        print(f"plan in {time.perf_counter() - begin:.1f} s: {summary(plan)}")
        seconds, peak = measure(base)
        print(f"converted in {seconds:.1f} s, peak anonymous memory {peak / 1e6:.0f} MB")
        truth = run("torch", source, "float64", Path(name) / "truth.npy")
        reference = run("torch", source, "float32", Path(name) / "torch.npy")
        port = run("mlx", made, "float32", Path(name) / "mlx.npy")
        scale = np.abs(truth).max()
        errors = [np.abs(values - truth).max() for values in (port, reference)]
        bound = 16 * errors[1] + 4 * np.finfo(np.float32).eps * scale
        agree = (port.argmax(-1) == truth.argmax(-1)).mean()
        print(
            f"logits to {scale:.3g}: error of mlx {errors[0]:.3g}, of torch {errors[1]:.3g}, "
            f"bound {bound:.3g}; argmax equal {agree:.2%}"
        )
        return bool(errors[0] <= bound)


def summary(plan: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {value}" for name, value in plan.items() if isinstance(value, str | int | float)
    )


def main() -> None:
    if sys.argv[1:2] == ["--step"]:
        step(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--kind", choices=("safetensors", "pth"), default="safetensors")
    given = parser.parse_args()
    versions = {name: metadata.version(name) for name in ("numpy", "torch", "mlx")}
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}, {versions}")
    sys.exit(0 if bench(given.folder, given.kind) else 1)


if __name__ == "__main__":
    main()
