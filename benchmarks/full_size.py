"""A full-size random Dia (1.6 B) or MetaVoice (1.2 B) all the way: plan, conversion, and one decoder step of
each side against float64.

    python benchmarks/full_size.py [--model dia|metavoice] [--kind safetensors|pth|pt] [--folder DIR]

Each side runs in a process of its own, one after another; float64 takes 13 GB of memory (MetaVoice 10). DIR
needs 20 GB (26 for pth, MetaVoice 16). Exits with 1 where mlx_port's error is over 16 times torch_ref's own
float32 error plus 4 units in the last place of the largest logit.
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
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from checkpoints import FORMS, make_checkpoint
from convert import measure

TEXT = "[S1] One decoder step at full size. [S2] Then another one."
ROWS = 2
PROMPT = 60  # ids of text
Array = Callable[[np.ndarray], Any]


def opened(side: str, model: str, folder: str, dtype: str) -> Any:
    """The network that is stepped: Dia's, or MetaVoice's first stage."""
    if side == "torch":
        from torch_ref import loading

        if model == "dia":
            return loading.load(folder, dtype=dtype, device="cpu").network
        return loading.open_networks(folder, kinds=[model], device="cpu", dtype=dtype)[model]
    import mlx.core as mx

    from mlx_port import loading

    mx.set_default_device(mx.Device(mx.cpu))
    if model == "dia":
        return loading.load(folder, dtype=dtype).network
    return loading.open_networks(folder, kinds=[model], dtype=dtype)[model]


def dia_steps(network: Any, array: Array) -> Iterator[Any]:
    """Logits of ROWS rows, both branches, one after another."""
    from tts_core.tokenizer import tokenize

    config = network.config
    rng = np.random.default_rng(0)
    rows = rng.integers(0, config.eos_token_id, (1, ROWS, config.decoder_config.num_channels), np.int32)
    rows[:, 0] = config.bos_token_id
    source = network.read([array(tokenize(TEXT))], network.encode_nothing())
    cache = network.new_cache()
    for row in range(ROWS):
        tokens = array(np.concatenate([rows[:, row : row + 1]] * 2))
        yield network.next_logits(tokens, cache, source)


def metavoice_steps(network: Any, array: Array) -> Iterator[Any]:
    """Logits behind a text, and behind one id more; with a speaker and without."""
    rng, config = np.random.default_rng(0), network.config
    ids = rng.integers(0, config.vocab_size, (2, PROMPT + 1)).astype(np.int32)
    speakers = rng.normal(0, config.speaker_embedding_size**-0.5, (2, config.speaker_embedding_size))
    speakers[1] = 0
    heard, cache = network.speakers(array(speakers.astype(np.float32))), network.new_cache(PROMPT + 1)
    for rows in (ids[:, :PROMPT], ids[:, PROMPT:]):
        yield network.next_logits(array(rows), heard, cache)


STEPS = {"dia": dia_steps, "metavoice": metavoice_steps}


def logits(side: str, model: str, folder: str, dtype: str) -> tuple[np.ndarray, float, float]:
    """(logits of each step; seconds to load; seconds of the last step)."""
    begin = time.perf_counter()
    network = opened(side, model, folder, dtype)
    if side == "torch":
        import torch

        array, host, last = torch.from_numpy, lambda x: x.detach().numpy(), torch.inference_mode()
    else:
        import contextlib

        import mlx.core as mx

        array, host, last = mx.array, np.array, contextlib.nullcontext()
    loaded = time.perf_counter() - begin
    out: list[np.ndarray] = []
    with last:
        begin = time.perf_counter()
        for step in STEPS[model](network, array):
            out.append(host(step))
            seconds, begin = time.perf_counter() - begin, time.perf_counter()
    return np.stack(out), loaded, seconds


def run(side: str, model: str, folder: Path, dtype: str, out: Path) -> np.ndarray:
    """`logits` in a process of its own; prints its times."""
    command = [sys.executable, __file__, "--step", side, model, str(folder), dtype, str(out)]
    subprocess.run(command, check=True, env={**os.environ, "MLX_ENABLE_TF32": "0"})
    return np.load(out).astype(np.float64)


def step(arguments: list[str]) -> None:
    side, model, folder, dtype, out = arguments
    values, loaded, seconds = logits(side, model, folder, dtype)
    np.save(out, values)
    print(f"{side:>5} {dtype}: loaded in {loaded:.1f} s, a step in {seconds:.2f} s", flush=True)


def bench(folder: Path, model: str, kind: str) -> bool:
    with tempfile.TemporaryDirectory(dir=folder, prefix="full-size-") as name:
        source, made = Path(name) / "source", Path(name) / "made"
        make_checkpoint(source, model, kind)
        base = [sys.executable, "-m", "converters.cli", "--hf-path", str(source), "--mlx-path", str(made)]
        begin = time.perf_counter()
        plan = json.loads(subprocess.check_output([*base, "--dry-run", "--json"]))
        print(f"plan in {time.perf_counter() - begin:.1f} s: {summary(plan)}")
        seconds, peak = measure(base)
        print(f"converted in {seconds:.1f} s, peak anonymous memory {peak / 1e6:.0f} MB")
        truth = run("torch", model, source, "float64", Path(name) / "truth.npy")
        reference = run("torch", model, source, "float32", Path(name) / "torch.npy")
        port = run("mlx", model, made, "float32", Path(name) / "mlx.npy")
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
    parser.add_argument("--model", choices=list(STEPS), default="dia")
    parser.add_argument("--kind", help="default: the first in which the model is published")
    given = parser.parse_args()
    if given.kind not in (None, *FORMS[given.model]):
        parser.error(f"--kind: {given.model} is published as {', '.join(FORMS[given.model])}")
    versions = {name: metadata.version(name) for name in ("numpy", "torch", "mlx")}
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}, {versions}")
    sys.exit(0 if bench(given.folder, given.model, given.kind or FORMS[given.model][0]) else 1)


if __name__ == "__main__":
    main()
