"""Plan, convert and run a full-size random Dia (1.6 B), MARS5 (0.76 and 0.45 B), MetaVoice (1.2 B) or Dia2.

One decoder step of each side, or one call of MARS5's diffusion, is compared with float64.

    python benchmarks/full_size.py [--model dia|mars5|metavoice|dia2] [--kind safetensors|pth|pt|1b|2b]
        [--folder DIR]

Each side runs in a process of its own, one after the other; float64 takes 13 GB of memory (MARS5 7, MetaVoice
10, Dia2 9 or 16). DIR needs 20 GB (26 for pth, MARS5 8, MetaVoice 16, Dia2 10 or 17). Exits with 1 if
mlx_port's error exceeds 16 times torch_ref's float32 error plus 4 units in the last place of the largest
logit.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from convert import measure

from benchmarks.lib.checkpoints import FORMS, make_checkpoint
from benchmarks.lib.timing import arguments, machine

TEXT = "[S1] One decoder step at full size. [S2] Then another one."
ROWS = 2
PROMPT = 60  # ids of text
REFERENCE, FRAMES, T = 75, 40, 120  # MARS5: frames of the reference, new frames, timestep of the call
Array = Callable[[np.ndarray], Any]


def opened(side: str, kind: str, folder: str, dtype: Any) -> Any:
    """Open the network to run. kind: of the part."""
    if side == "torch":
        from torch_ref import DiaPipeline, loading

        if kind == "dia":
            return DiaPipeline.load(folder, dtype=dtype, device="cpu").engine.network
        return loading.open_networks(folder, kinds=[kind], device="cpu", dtype=dtype)[kind]
    import mlx.core as mx

    from mlx_port import DiaPipeline, loading

    mx.set_default_device(mx.Device(mx.cpu))
    if kind == "dia":
        return DiaPipeline.load(folder, dtype=dtype).engine.network
    return loading.open_networks(folder, kinds=[kind], dtype=dtype)[kind]


def dia_steps(network: Any, array: Array) -> Iterator[Any]:
    """Yield the logits of ROWS rows, both branches, one after the other."""
    from tts_core.dia.text import tokenize

    config = network.config
    rng = np.random.default_rng(0)
    rows = rng.integers(0, config.eos_token_id, (1, ROWS, config.decoder_config.num_channels), np.int32)
    rows[:, 0] = config.bos_token_id
    source = network.read([array(tokenize(TEXT))], network.encode_empty())
    cache = network.new_cache()
    for row in range(ROWS):
        tokens = array(np.concatenate([rows[:, row : row + 1]] * 2))
        yield network.next_logits(tokens, cache, source)


def metavoice_steps(network: Any, array: Array) -> Iterator[Any]:
    """Yield the logits after a text and after one more id, with a speaker and without."""
    rng, config = np.random.default_rng(0), network.config
    ids = rng.integers(0, config.vocab_size, (2, PROMPT + 1)).astype(np.int32)
    speakers = rng.normal(0, config.speaker_embedding_size**-0.5, (2, config.speaker_embedding_size))
    speakers[1] = 0
    heard, cache = network.speakers(array(speakers.astype(np.float32))), network.new_cache(PROMPT + 1)
    for rows in (ids[:, :PROMPT], ids[:, PROMPT:]):
        yield network.next_logits(array(rows), heard, cache)


def mars5_steps(network: Any, array: Array) -> Iterator[Any]:
    """Yield the logits after a prompt with its speaker vector, and after one more id."""
    rng, config = np.random.default_rng(0), network.config
    codes = rng.integers(0, config.codebook_rows - 1, (1, REFERENCE, config.n_codebooks))
    ids = rng.integers(0, config.vocab_size, (1, PROMPT + 1))
    cache, rotary = network.new_cache(PROMPT + 2), network.positions(PROMPT + 2)
    rows = network.rows(network.speaker(array(codes)), array(ids[:, :PROMPT]))
    yield network.next_logits(rows, rotary(0, PROMPT + 1), cache)
    yield network.next_logits(network.embed(array(ids[:, PROMPT:])), rotary(PROMPT + 1, 1), cache)


def mars5_call(network: Any, array: Array) -> Iterator[Any]:
    """Yield the logits of all cells at one timestep."""
    rng, config = np.random.default_rng(0), network.config
    heard = network.speaker(
        array(rng.integers(0, config.codebook_rows - 1, (1, REFERENCE, config.n_codebooks)))
    )
    text = array(rng.integers(0, config.text_rows, (1, PROMPT)))
    source = network.read(text, heard, frames=FRAMES, timesteps=T + 1)
    codes = rng.integers(0, config.n_classes, (1, FRAMES, config.n_codebooks))
    yield network(array(codes), source, array(np.array([T])))


def dia2_frames(network: Any, array: Array) -> Iterator[Any]:
    """Yield the logits of the last code of ROWS frames; those before it are given."""
    rng, config = np.random.default_rng(0), network.config
    cache = network.transformer.new_cache()
    for row in range(ROWS):
        codes = rng.integers(0, config.codebook_size, (1, config.n_streams))
        text = rng.integers(0, config.text_vocab_size, (2, 2))
        tokens = array(np.concatenate([text, np.repeat(codes, 2, axis=0)], axis=1)[:, None])
        hidden = network.transformer(tokens, row, cache)[:, 0]
        stages = network.depformer.new_cache()
        for stage in range(config.n_streams - 1):
            previous = array(np.repeat(codes[:, stage], 2))
            logits = network.depformer(stage, hidden, previous, (previous, previous), stages)
        yield logits


STEPS = {
    "dia": dia_steps,
    "metavoice": metavoice_steps,
    "mars5": mars5_steps,
    "mars5_nar": mars5_call,
    "dia2": dia2_frames,
}
NETWORKS = {"dia": ("dia",), "mars5": ("mars5", "mars5_nar"), "metavoice": ("metavoice",), "dia2": ("dia2",)}


def logits(side: str, kind: str, folder: str, dtype: str) -> tuple[np.ndarray, float, float]:
    """Run the steps. Returns their logits, seconds to load, and seconds of the last step."""
    begin = time.perf_counter()
    network = opened(side, kind, folder, dtype)
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
        for step in STEPS[kind](network, array):
            out.append(host(step))
            seconds, begin = time.perf_counter() - begin, time.perf_counter()
    return np.stack(out), loaded, seconds


def run(side: str, kind: str, folder: Path, dtype: str, out: Path) -> np.ndarray:
    """Run `logits` in a process of its own, which prints its times."""
    command = [sys.executable, __file__, "--step", side, kind, str(folder), dtype, str(out)]
    subprocess.run(command, check=True, env={**os.environ, "MLX_ENABLE_TF32": "0"})
    return np.load(out).astype(np.float64)


def step(arguments: list[str]) -> None:
    side, kind, folder, dtype, out = arguments
    values, loaded, seconds = logits(side, kind, folder, dtype)
    np.save(out, values)
    print(f"{kind}, {side:>5} {dtype}: loaded in {loaded:.1f} s, a step in {seconds:.2f} s", flush=True)


def bench(folder: Path, model: str, kind: str) -> bool:
    with tempfile.TemporaryDirectory(dir=folder, prefix="full-size-") as name:
        source, made = Path(name) / "source", Path(name) / "made"
        make_checkpoint(source, model, kind)
        base = [sys.executable, "-m", "converters.cli", "--hf-path", str(source), "--mlx-path", str(made)]
        begin = time.perf_counter()
        report = json.loads(subprocess.check_output([*base, "--dry-run", "--json"]))
        print(f"plan in {time.perf_counter() - begin:.1f} s: {summary(report)}")
        seconds, peak = measure(base)
        print(f"converted in {seconds:.1f} s, peak anonymous memory {peak / 1e6:.0f} MB")
        return all([compared(kind, source, made) for kind in NETWORKS[model]])


def compared(kind: str, source: Path, made: Path) -> bool:
    """Check mlx_port's logits against the bound. source, made: the published and the converted folder."""
    truth = run("torch", kind, source, "float64", made.with_name("truth.npy"))
    reference = run("torch", kind, source, "float32", made.with_name("torch.npy"))
    port = run("mlx", kind, made, "float32", made.with_name("mlx.npy"))
    scale = np.abs(truth).max()
    errors = [np.abs(values - truth).max() for values in (port, reference)]
    bound = 16 * errors[1] + 4 * np.finfo(np.float32).eps * scale
    agree = (port.argmax(-1) == truth.argmax(-1)).mean()
    print(
        f"{kind}: logits to {scale:.3g}: error of mlx {errors[0]:.3g}, of torch {errors[1]:.3g}, "
        f"bound {bound:.3g}; argmax equal {agree:.2%}",
        flush=True,
    )
    return bool(errors[0] <= bound)


def summary(report: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {value}" for name, value in report.items() if isinstance(value, str | int | float)
    )


def main() -> None:
    if sys.argv[1:2] == ["--step"]:
        step(sys.argv[2:])
        return
    parser = arguments(__doc__)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--model", choices=list(NETWORKS), default="dia")
    parser.add_argument("--kind", help="default: the model's first published kind")
    given = parser.parse_args()
    if given.kind not in (None, *FORMS[given.model]):
        parser.error(f"--kind: {given.model} is published as {', '.join(FORMS[given.model])}")
    print(machine())
    sys.exit(0 if bench(given.folder, given.model, given.kind or FORMS[given.model][0]) else 1)


if __name__ == "__main__":
    main()
