"""Time and peak memory of `convert-weights` on a full-size (1.6 B) random float32 Dia, beside a file copy.

    python benchmarks/convert.py [--kind safetensors|pth] [--folder DIR] [--convert "-q --q-bits 8"]

Makes the checkpoint (6.4 GB) in a temporary folder of DIR, copies it, converts it in a process of its own
whose anonymous memory is polled, prints one line per kind, and deletes everything. DIR needs 14 GB.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path

import numpy as np

from converters.writer import Entry, SafetensorsWriter

KEYS = Path(__file__).parents[1] / "tests/data/keys"
LIMIT = 1.5e9  # bytes of anonymous memory

DIA_CONFIG = {
    "version": "0.1",
    "training": {},
    "data": {
        "text_length": 1024,
        "audio_length": 3072,
        "channels": 9,
        "text_pad_value": 0,
        "audio_eos_value": 1024,
        "audio_pad_value": 1025,
        "audio_bos_value": 1026,
        "delay_pattern": [0, 8, 9, 10, 11, 12, 13, 14, 15],
    },
    "model": {
        "dropout": 0.0,
        "normalization_layer_epsilon": 1e-5,
        "rope_min_timescale": 1,
        "rope_max_timescale": 10000,
        "src_vocab_size": 256,
        "tgt_vocab_size": 1028,
        "encoder": {"n_layer": 12, "n_embd": 1024, "n_hidden": 4096, "n_head": 16, "head_dim": 128},
        "decoder": {
            **{"n_layer": 18, "n_embd": 2048, "n_hidden": 8192},
            **{"gqa_query_heads": 16, "kv_heads": 4, "gqa_head_dim": 128},
            **{"cross_query_heads": 16, "cross_head_dim": 128},
        },
    },
}
DAC_CONFIG = {
    "model_type": "dac",
    "sampling_rate": 44100,
    "encoder_hidden_size": 64,
    "downsampling_ratios": [2, 4, 8, 8],
    "decoder_hidden_size": 1536,
    "n_codebooks": 9,
    "codebook_size": 1024,
    "codebook_dim": 8,
}


def write_random(path: Path, keys: str) -> None:
    """A float32 safetensors file of the shapes in a key list, tensor by tensor."""
    shapes = json.loads((KEYS / f"{keys}.json").read_text())
    rng = np.random.default_rng(0)
    writer = SafetensorsWriter(path, [Entry(name, "F32", tuple(shape)) for name, shape in shapes.items()])
    for name, shape in shapes.items():
        writer.write(name, rng.standard_normal(shape, np.float32) * np.float32(0.02))
    writer.close()


def make_checkpoint(folder: Path, kind: str) -> Path:
    """The published folder: nari's names and layout in one file, DAC in codec/."""
    (folder / "codec").mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(DIA_CONFIG))
    (folder / "codec/config.json").write_text(json.dumps(DAC_CONFIG))
    write_random(folder / "codec/model.safetensors", "dac_transformers")
    weights = folder / "model.safetensors"
    write_random(weights, "dia_nari")
    if kind == "pth":
        pickle = folder / "dia-v0_1.pth"
        script = (
            "import sys, torch, safetensors.torch as s; torch.save(s.load_file(sys.argv[1]), sys.argv[2])"
        )
        subprocess.run([sys.executable, "-c", script, weights, pickle], check=True)
        weights.unlink()
        weights = pickle
    return weights


def anonymous_bytes(pid: int) -> int:
    """Anonymous memory of a process now; 0 where /proc does not tell."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:")), 0)


def measure(command: list[str]) -> tuple[float, int]:
    """(seconds, peak anonymous bytes) of a command."""
    begin, peak = time.perf_counter(), 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            peak = max(peak, anonymous_bytes(process.pid))
            time.sleep(0.002)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed")
    return time.perf_counter() - begin, peak


def bench(kind: str, folder: Path, flags: list[str]) -> dict[str, object]:
    """One checkpoint made, copied, converted and deleted."""
    with tempfile.TemporaryDirectory(dir=folder, prefix="convert-bench-") as name:
        source, copy, made = (Path(name) / part for part in ("source", "copy", "made"))
        weights = make_checkpoint(source, kind)
        size = sum(file.stat().st_size for file in source.rglob("*") if file.is_file())
        os.sync()
        begin = time.perf_counter()
        shutil.copytree(source, copy)
        copied = time.perf_counter() - begin
        shutil.rmtree(copy)
        os.sync()
        command = [
            sys.executable,
            "-m",
            "converters.cli",
            "--hf-path",
            str(source),
            "--mlx-path",
            str(made),
            *flags,
        ]
        seconds, peak = measure(command)
        written = sum(file.stat().st_size for file in made.rglob("*") if file.is_file())
        return {
            "kind": kind,
            "file": weights.name,
            "read_mb": round(size / 1e6),
            "written_mb": round(written / 1e6),
            "seconds": round(seconds, 1),
            "mb_per_s": round(size / 1e6 / seconds),
            "copy_seconds": round(copied, 1),
            "times_copy": round(seconds / copied, 2),
            "peak_anonymous_mb": round(peak / 1e6) if peak else None,
            "within_limit": peak < LIMIT,
        }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kind", choices=["safetensors", "pth"], help="default: both")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--convert", default="", help="flags for convert-weights")
    given = parser.parse_args()
    versions = {name: metadata.version(name) for name in ("numpy", "safetensors", "torch")}
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}, {versions}")
    results = [
        bench(kind, given.folder, shlex.split(given.convert))
        for kind in ([given.kind] if given.kind else ["safetensors", "pth"])
    ]
    for result in results:
        print(json.dumps(result))
    if not all(result["within_limit"] for result in results):
        sys.exit(f"peak anonymous memory is over {LIMIT / 1e9} GB")


if __name__ == "__main__":
    main()
