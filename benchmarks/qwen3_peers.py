"""Compare Qwen3-TTS with other programs: milliseconds per frame, and seconds to the first sound.

    python benchmarks/qwen3_peers.py [--peers torch_ref,original,nari,nari-bf16] [--sizes 0.6b,1.7b|tiny]
        [--texts 1,8,32] [--folder QWEN3-TTS] [--nari NARI-QWEN3-TTS] [--dtype bfloat16] [--frames 20,80]
        [--runs 3] [--limit 500] [--captures few|all]
    python benchmarks/qwen3_peers.py --peers mlx_port,mlx-audio

Each peer and size runs in a process of its own, one after the other. If one fails, its last line is printed
and the others run. Weights are random at the published shapes; texts have 40 tokens and are sampled as
published. The time of a frame, of all texts together, is the difference of two lengths: prompts and
compilations cancel out.

    torch_ref, mlx_port  ours
    original             QwenLM/Qwen3-TTS with transformers 4.57.3: installed (`pip install qwen-tts`), or in
                         --folder; timed with a quarter of the frames
    nari, nari-bf16      nari-labs/nari-qwen3-tts in --nari: only 1.7B, on an H100 or H200, with transformers
                         4.57.3 and flashinfer-python. Two thirds of the talker's feed-forward weights have
                         8 bits, its default; with `nari-bf16` all are bfloat16. --captures all captures
                         every shape of its profile
    mlx-audio            `pip install mlx-audio==0.6.2`

`codes`: the talker and all sixteen codes of a frame. `sound`: the codec, too, as a listener gets it.
`graphs`: only the replay of the graphs of nari's talker and predictor. `first`: seconds from the request of
all texts to the first sound of a text, median. Libraries that a peer imports only for recordings are replaced
by stand-ins.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from benchmarks.lib import qwen3_forms
from benchmarks.lib.qwen3_forms import Form
from benchmarks.lib.qwen3_networks import CONFIGS
from benchmarks.lib.timing import arguments, machine

PEERS = ("torch_ref", "original", "nari", "nari-bf16", "mlx_port", "mlx-audio")
MLX = ("mlx_port", "mlx-audio")


def absent(peer: str, size: str, given: argparse.Namespace) -> str:
    """Return the reason why a peer cannot run; "" if it can."""
    if peer.startswith("nari"):
        if given.nari is None or not (given.nari / "src/nari_qwen3_tts").is_dir():
            return f"no checkout of nari-labs/nari-qwen3-tts at --nari {given.nari}"
        return "" if size == "1.7b" else "it runs 1.7b only"
    if peer == "original" and given.folder is None and find_spec("qwen_tts") is None:
        return "qwen-tts is not installed, and no --folder is given"
    if peer == "mlx-audio" and find_spec("mlx_audio") is None:
        return "mlx-audio is not installed"
    return ""


def forms(peer: str, size: str, given: argparse.Namespace) -> Iterator[Form]:
    """Build a peer and yield its forms, each ready to be measured."""
    config, texts = CONFIGS[size], [int(text) for text in given.texts.split(",")]
    if peer == "original":
        return qwen3_forms.original(config, given.dtype, texts, given.folder)
    if peer == "mlx-audio":
        return qwen3_forms.mlx_audio(config, given.dtype)
    if peer.startswith("nari"):
        from benchmarks.lib import qwen3_nari

        return qwen3_nari.forms(
            given.nari, texts, quantized=peer == "nari", every_capture=given.captures == "all"
        )
    side = "mlx" if peer == "mlx_port" else "torch"
    return qwen3_forms.ours(side, config, given.dtype, [1] if side == "mlx" else texts)


def measured(form: Form, lengths: tuple[int, int], runs: int) -> tuple[float, float | None]:
    """Return milliseconds per frame, and seconds to the first sound; None for a form without sound."""
    short, long = (max(1 + index, length // form.shorter) for index, length in enumerate(lengths))
    times, first = {short: list[float](), long: list[float]()}, list[float]()
    form.speak(short)
    form.speak(long)  # some compile again for another length
    for _ in range(runs):
        for length, found in times.items():
            started = time.perf_counter()
            first += form.speak(length)
            found.append(time.perf_counter() - started)
    taken = statistics.median(times[long]) - statistics.median(times[short])
    return 1000 * taken / (long - short), statistics.median(first) if first else None


def alone(peer: str, size: str, given: argparse.Namespace) -> None:
    """Measure one peer in this process. Raises SystemExit with the cause of a failure."""
    short, long = (int(frame) for frame in given.frames.split(","))
    try:
        for number, form in enumerate(forms(peer, size, given)):
            if not number:
                print(f"{size} {peer}: {machine('mlx' if peer in MLX else 'torch')}", flush=True)
            row(peer, size, form, (short, long), given.runs)
    except Exception as fault:
        traceback.print_exc()
        raise SystemExit(cause(fault)) from None


def row(peer: str, size: str, form: Form, lengths: tuple[int, int], runs: int) -> None:
    """Measure one form and print it, or its error: the next number of texts may still run."""
    try:
        frame, first = measured(form, lengths, runs)
    except Exception as fault:
        traceback.print_exc()
        print(f"{size} {peer} {form.what} {form.texts}: {cause(fault)}", flush=True)
    else:
        heard = "" if first is None else f"{first:>8.4f}"
        print(f"{size:<5} {peer:<10} {form.what:<7} {form.texts:>5} {frame:>9.3f} {heard}", flush=True)


def cause(fault: BaseException) -> str:
    """Describe the first of a chain of errors."""
    while fault.__cause__ is not None:
        fault = fault.__cause__
    return " ".join(f"{type(fault).__name__}: {fault}".split())[:1000]


def beside(peer: str, size: str, given: argparse.Namespace) -> None:
    """Measure one peer in a process of its own, and print its lines as they come."""
    command = [sys.executable, *sys.argv, "--peers", peer, "--sizes", size, "--alone"]
    with tempfile.TemporaryFile("w+") as errors:
        begun = subprocess.Popen(command, stderr=errors)
        try:
            code = begun.wait(given.limit)
            said = f"ended with {code}"
        except subprocess.TimeoutExpired:
            begun.kill()
            code, said = begun.wait(), f"had not ended after {given.limit:g} s"
        if code:
            errors.seek(0)
            lines = [line for line in errors.read().splitlines() if line.strip()]
            print(f"{size} {peer}: {said}: {lines[-1] if lines else ''}", flush=True)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--peers", default="torch_ref,original,nari,nari-bf16", help=", ".join(PEERS))
    parser.add_argument("--sizes", default="0.6b,1.7b", help=", ".join(CONFIGS))
    parser.add_argument("--texts", default="1,8,32")
    parser.add_argument("--folder", help="of the original")
    parser.add_argument("--nari", type=Path, help="a checkout of the peer")
    parser.add_argument("--captures", choices=("few", "all"), default="few")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--frames", default="20,80")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--limit", type=float, default=500, help="seconds of one peer and size")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    peers = given.peers.split(",")
    if unknown := set(peers) - set(PEERS):
        parser.error(f"no such peer: {', '.join(sorted(unknown))}")
    if given.alone:
        alone(peers[0], given.sizes, given)
        return
    print(f"{given.dtype}, frames {given.frames}, median of {given.runs} runs, real time is 80 ms a frame")
    print(f"{'size':<5} {'peer':<10} {'what':<7} {'texts':>5} {'ms/frame':>9} {'first s':>8}", flush=True)
    for size in given.sizes.split(","):
        for peer in peers:
            why = absent(peer, size, given)
            if why:
                print(f"{size} {peer}: left out: {why}", flush=True)
            else:
                beside(peer, size, given)


if __name__ == "__main__":
    main()
