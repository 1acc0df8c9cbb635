"""Measure milliseconds per frame of Qwen3-TTS in PyTorch, plain and captured, and seconds to the first sound.

    python benchmarks/qwen3_frame.py [--sizes 0.6b,1.7b|tiny] [--forms captured,plain] [--dtype bfloat16]
        [--texts 1,8,32] [--frames 10,60] [--runs 3] [--prompt 40]

Weights are random at the published shapes, drawn on the device; `tiny` runs anywhere. A frame is a step of
the talker and all codes of all texts, with the random numbers and reads of a session, without the codec. The
time is the difference of two lengths, so that prompts cancel out; plain slots run a tenth of the frames.
`start` is the time to build and capture slots. `first` is the time from a text's `join` to its first frame,
`sound` to its first window of sound. `speed` compares with the rate of a device-to-device copy, measured
here: a frame reads each weight once, the predictor's once for each position, and the keys and values of the
middle frame.

Real time is 80 ms a frame. Captured frames are compared with plain ones in
tests/torch_ref/cuda/qwen3/test_slots.py.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.lib.qwen3_networks import CONFIGS, networks
from benchmarks.lib.timing import arguments, copy_rate, machine
from torch_ref.cuda.qwen3.decoder import make_slots as captured
from torch_ref.cuda.qwen3.step import runs
from torch_ref.qwen3.decoder import make_slots
from tts_core.nn.noise import HostNoise
from tts_core.qwen3 import layout as layouts
from tts_core.qwen3.config import Qwen3Config, parameter_shapes
from tts_core.qwen3.layout import Qwen3Inputs, Qwen3Sampling

FORMS: dict[str, Any] = {"captured": captured, "plain": make_slots}
PLAIN = 10  # times slower, at least
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def joining(config: Qwen3Config, seed: int, prompt: int) -> Qwen3Inputs:
    """Lay out random text of about `prompt` positions, all read before speech."""
    ids = np.random.default_rng(seed).integers(0, 9999, prompt).tolist()
    laid = layouts.build(config, ids, language=None, streamed=False)
    return Qwen3Inputs(laid, Qwen3Sampling(), HostNoise(seed))


def speak(slots: Any, texts: list[Qwen3Inputs], frames: int) -> np.ndarray:
    """Draw frames as a session does. → (frames, texts, Q)."""
    for slot, text in enumerate(texts):
        slots.join({slot: text})
    launched, drawn = deque[Any](), list[np.ndarray]()
    while len(drawn) < frames:
        while len(launched) <= slots.ahead and len(drawn) + len(launched) < frames:
            launched.append(slots.launch(1))
        drawn.append(slots.read(launched.popleft())[0, : len(texts)])
    for slot in range(len(texts)):
        slots.leave(slot)
    return np.stack(drawn)


def timed(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started


def bytes_per_frame(config: Qwen3Config, item: int, texts: int, position: int) -> float:
    """Count the bytes that a frame reads."""
    total, stack = 0.0, config.talker
    for name, shape in parameter_shapes(config).items():
        if "embedding" not in name and not name.startswith("speaker_encoder."):
            passes = config.n_codebooks if name.startswith("talker.code_predictor.model.layers.") else 1
            total += passes * int(np.prod(shape)) * item
    keys = stack.num_key_value_heads * stack.head_dim * stack.num_hidden_layers
    return total + 2 * texts * position * keys * item


def row(
    title: str, form: str, network: Any, codec: Any, texts: int, lengths: tuple[int, int], repeats: int,
    prompt: int, rate: float,
) -> None:  # fmt: skip
    """Measure one form with as many texts, and print it."""
    config, (short, long) = network.config, lengths
    if form == "plain":
        short, long = max(1, short // PLAIN), max(2, long // PLAIN)
    given = [joining(config, seed, prompt) for seed in range(texts)]
    made: list[Any] = []
    start = timed(lambda: made.append(FORMS[form](network, texts=texts, room=prompt + 20 + long)))
    speak(made[0], given, short)
    times = {count: list[float]() for count in (short, long)}
    for _ in range(repeats):
        for count, found in times.items():
            found.append(timed(lambda count=count: speak(made[0], given, count)))
    frame = (statistics.median(times[long]) - statistics.median(times[short])) / (long - short)
    read = bytes_per_frame(config, network.talker.codec_head.weight.element_size(), texts, prompt + long // 2)
    speed = f"{read / frame / rate:.0%}"
    first = statistics.median(timed(lambda: speak(made[0], given[:1], 1)) for _ in range(repeats))
    window = codec.policy.served_stop(0)

    def sound() -> None:
        codes = np.maximum(speak(made[0], given[:1], window)[:, 0].T, 0) % config.codebook_size
        codec.decode_window(codes[None].astype(np.int32), None)[0].cpu()

    heard = [timed(sound) for _ in range(repeats + 1)][1:] if form == "captured" else []
    later = f"{statistics.median(heard):>8.3f}" if heard else ""
    print(
        f"{title:<34} {texts:>5} {1000 * frame:>9.3f} {speed:>6} {start:>8.2f} {first:>8.4f} {later}",
        flush=True,
    )


@torch.inference_mode()
def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--sizes", default="tiny", help=", ".join(CONFIGS))
    parser.add_argument("--forms", default="captured,plain")
    parser.add_argument("--dtype", default="bfloat16", choices=("float32", "bfloat16", "float16"))
    parser.add_argument("--texts", default="1,8,32")
    parser.add_argument("--frames", default="10,60")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--prompt", type=int, default=40)
    args = parser.parse_args()
    short, long = map(int, args.frames.split(","))
    torch.backends.cuda.matmul.allow_tf32 = False
    rate = copy_rate("torch")
    print(f"{machine('torch')}, copies at {rate / 1e12:.2f} TB/s", flush=True)
    print(f"{args.dtype}, prompts of {args.prompt}, frames {short} to {long}, median of {args.runs} runs")
    print(f"{'':<34} {'texts':>5} {'ms/frame':>9} {'speed':>6} {'start s':>8} {'first s':>8} {'sound s':>8}")
    for size in args.sizes.split(","):
        network, codec = networks("torch", CONFIGS[size], args.dtype, DEVICE)
        for form in args.forms.split(","):
            if form == "captured" and not runs(network):
                print("captured: these kernels need an NVIDIA GPU and Triton")
                continue
            for texts in map(int, args.texts.split(",")):
                title = f"Qwen3-TTS {size}, {form}"
                row(title, form, network, codec, texts, (short, long), args.runs, args.prompt, rate)
        del network, codec
        if DEVICE == "cuda":
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
