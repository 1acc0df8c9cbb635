"""Measure milliseconds per frame of Qwen3-TTS beside a peer's, by turns: its makers' code, or mlx-audio.

    python benchmarks/qwen3_peers.py --peer original --folder QWEN3-TTS [--sizes 0.6b,1.7b|tiny]
    python benchmarks/qwen3_peers.py --peer mlx-audio [--dtype bfloat16] [--frames 20,80] [--runs 3]

`original` runs QwenLM/Qwen3-TTS from a folder, with transformers 4.57.3, beside torch_ref; `mlx-audio`
(`pip install mlx-audio==0.6.2`) runs beside mlx_port. Weights are random at the published shapes; one text of
about 40 positions, sampled as published; the codec is left out. The time is the difference of two lengths, so
that prompts and compilations cancel out. Libraries that a peer imports for recordings only are left out.
"""

from __future__ import annotations

import argparse
import importlib
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module, metadata
from typing import Any
from unittest import mock

import numpy as np
from checkpoints import qwen3_config
from qwen3_networks import CONFIGS, networks

from tts_core.nn.noise import HostNoise
from tts_core.qwen3 import layout as layouts
from tts_core.qwen3.config import Qwen3Config
from tts_core.qwen3.rows import Qwen3Joining
from tts_core.qwen3.sampling import Qwen3Sampling

PROMPT = 40
SOUND = (
    "librosa",
    "librosa.filters",
    "soundfile",
    "torchaudio",
    "torchaudio.compliance",
    "sox",
    "onnxruntime",
)
SOUND += ("torchaudio.compliance.kaldi", "einops", "gradio", "scipy", "scipy.signal")
Frames = Callable[[int], None]  # draws as many


def published(config: Qwen3Config) -> dict[str, Any]:
    """config.json, with the rotation that every release has."""
    found = qwen3_config(config)
    half = config.talker.head_dim // 2
    parts = [half - 2 * (half * 5 // 16), half * 5 // 16, half * 5 // 16]
    found["talker_config"]["rope_scaling"] = {
        "interleaved": True,
        "mrope_section": parts,
        "rope_type": "default",
    }
    return found


def leave_out() -> None:
    """Put stand-ins in the place of libraries that are not installed."""
    for name in SOUND:
        try:
            importlib.import_module(name)
        except ImportError:
            sys.modules[name] = mock.MagicMock()


def ids(count: int = PROMPT) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 9999, count)


def ours(side: str, config: Qwen3Config, dtype: str) -> Frames:
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    package = "mlx_port" if side == "mlx" else "torch_ref.cuda"
    network, _ = networks(side, config, dtype, device)
    made = import_module(f"{package}.qwen3.slots")
    make = made.Slots if side == "mlx" else made.make_slots
    laid = layouts.build(config, ids().tolist(), language=None, streamed=False)

    def frames(count: int) -> None:
        slots = kept.setdefault("slots", None) or make(network, texts=1, room=PROMPT + 520)
        kept["slots"] = slots
        slots.join(0, Qwen3Joining(laid, Qwen3Sampling(), HostNoise(1)))
        launched = [slots.launch(1) for _ in range(slots.ahead)]
        for _ in range(count):
            launched.append(slots.launch(1))
            slots.read(launched.pop(0))
        slots.leave(0)

    kept: dict[str, Any] = {}
    return frames


def original(config: Qwen3Config, dtype: str, folder: str) -> Frames:
    import torch
    import transformers  # before stand-ins, which it would find

    assert transformers.__version__ == "4.57.3", transformers.__version__
    leave_out()
    sys.path.insert(0, folder)
    sys.modules["qwen_tts.inference.qwen3_tts_model"] = mock.MagicMock()
    sys.modules["qwen_tts.inference.qwen3_tts_tokenizer"] = mock.MagicMock()
    module = import_module("qwen_tts.core.models.modeling_qwen3_tts")
    kind = import_module("qwen_tts.core.models.configuration_qwen3_tts").Qwen3TTSConfig
    given = kind(**published(config))
    given._attn_implementation = "sdpa"
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with device:
        model = module.Qwen3TTSForConditionalGeneration(given).to(getattr(torch, dtype)).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(
            parameter, *((1, 0.1) if parameter.ndim == 1 else (0, parameter[0].numel() ** -0.5))
        )
    text = torch.tensor(ids()[None], device=device)

    @torch.inference_mode()
    def frames(count: int) -> None:
        model.generate(  # an id that is never drawn ends speech
            [text],
            languages=["auto"],
            speakers=[None],
            non_streaming_mode=True,
            max_new_tokens=count + 1,
            eos_token_id=config.vocab_size - 1,
        )
        if device.type == "cuda":
            torch.cuda.synchronize()

    return frames


def mlx_audio(config: Qwen3Config, dtype: str) -> Frames:
    import mlx.core as mx
    from mlx.utils import tree_flatten

    leave_out()
    config = replace(config, mode="custom_voice", speaker_encoder=None)
    module = import_module("mlx_audio.tts.models.qwen3_tts.qwen3_tts")
    kind = import_module("mlx_audio.tts.models.qwen3_tts.config").ModelConfig
    model = module.Model(kind.from_dict(published(config)))
    model.config.tts_model_type = "base"  # whose generation needs neither voice nor recording
    parameters: Any = tree_flatten(model.parameters())
    for name, value in parameters:
        wide, mean = (0.1, 1) if value.ndim == 1 else (value[0].size ** -0.5, 0)
        drawn = mx.random.normal(value.shape, getattr(mx, dtype), loc=mean, scale=wide)
        if name == "talker.codec_head.weight":
            drawn[config.codec_eos_id] = 0
        model.load_weights([(name, drawn)], strict=False)
        mx.eval(drawn)
    model.tokenizer, model.speech_tokenizer = mock.MagicMock(), mock.MagicMock()
    model.tokenizer.encode.return_value = ids().tolist()
    model.speech_tokenizer.decode = lambda codes: (mx.zeros((1, codes.shape[1])), [0])

    def frames(count: int) -> None:
        [made] = model.generate("text", max_tokens=count)
        assert made.token_count == count, made.token_count

    return frames


def milliseconds(frames: Frames, lengths: tuple[int, int]) -> float:
    """Time a frame."""
    times = []
    for count in lengths:
        started = time.perf_counter()
        frames(count)
        times.append(time.perf_counter() - started)
    return 1000 * (times[1] - times[0]) / (lengths[1] - lengths[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--peer", choices=("original", "mlx-audio"), required=True)
    parser.add_argument("--folder", help="of the original")
    parser.add_argument("--sizes", default="0.6b,1.7b")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--frames", default="20,80")
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    short, long = (int(one) for one in args.frames.split(","))
    side = "torch" if args.peer == "original" else "mlx"
    versions = {
        name: metadata.version(name) for name in ("torch", "mlx") if name in sys.modules or name == side
    }
    print(
        f"{platform.machine()}, {versions}, {args.dtype}, {args.runs} runs by turns, real time is 80 ms",
        flush=True,
    )
    for size in args.sizes.split(","):
        config = CONFIGS[size]
        peer = original(config, args.dtype, args.folder) if side == "torch" else mlx_audio(config, args.dtype)
        forms = {"ours": ours(side, config, args.dtype), args.peer: peer}
        times: dict[str, list[float]] = {name: [] for name in forms}
        for frames in forms.values():
            frames(short)
        for _ in range(args.runs):
            for name, frames in forms.items():
                times[name].append(milliseconds(frames, (short, long)))
        middle = {name: statistics.median(found) for name, found in times.items()}
        told = ", ".join(f"{name} {value:.2f} ms a frame" for name, value in middle.items())
        print(f"{size}: {told}, {middle[args.peer] / middle['ours']:.2f} times", flush=True)


if __name__ == "__main__":
    main()
