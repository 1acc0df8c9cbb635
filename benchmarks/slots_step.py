"""Measure milliseconds per step of texts that share a running batch: MetaVoice's first stage and MARS5's AR.

    python benchmarks/slots_step.py [--model metavoice,mars5] [--size full|tiny] [--side torch,mlx]
        [--dtype bfloat16] [--texts 1,4,8,32] [--steps 200]

`full` is the published shape with random weights; `tiny` runs anywhere. A step is an id of every text, with
guidance where the model has it, sampling and random numbers included, and launches are read as a session
reads them. All texts have prompts of PROMPT ids and join before the first step; the first fifth of the steps
is not counted. `ids/s` counts those of all texts.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections import deque
from importlib import import_module
from typing import Any

import numpy as np
from mars5_ar_step import TINY as TINY_MARS5
from mars5_ar_step import tensors
from metavoice_step import TINY as TINY_METAVOICE
from metavoice_step import weights

from tts_core.mars5.config import is_norm
from tts_core.mars5.options import Mars5Options
from tts_core.mars5.rows import Joining as Mars5Joining
from tts_core.mars5.spec import MARS5_AR, MARS5_TEXT_IDS
from tts_core.mars5.tokens import CodecPrompt
from tts_core.metavoice.config import FirstStageConfig, first_stage_parameter_shapes
from tts_core.metavoice.rows import Joining, most_rows
from tts_core.metavoice.sampling import FirstStageSampling
from tts_core.metavoice.spec import METAVOICE_FIRST_STAGE
from tts_core.nn.noise import HostNoise

PROMPT = 60  # ids
CONFIGS = {
    "metavoice": {"full": METAVOICE_FIRST_STAGE, "tiny": TINY_METAVOICE},
    "mars5": {"full": MARS5_AR, "tiny": TINY_MARS5},
}


def network(side: str, config: Any, dtype: str) -> Any:
    """Build the network of a configuration with random weights."""
    voice = isinstance(config, FirstStageConfig)
    module, name = ("metavoice.first_stage", "FirstStage") if voice else ("mars5.codec_lm", "CodecLM")
    package = "mlx_port" if side == "mlx" else "torch_ref"
    build = getattr(import_module(f"{package}.{module}"), name)

    def drawn(normal: Any) -> Any:
        if not voice:
            return tensors(config, normal)
        shapes = first_stage_parameter_shapes(config)
        return ((name, weights(name, shape, normal)) for name, shape in shapes.items())

    def narrow(name: str) -> bool:
        return voice or not is_norm(name)

    if side == "mlx":
        import mlx.core as mx

        mx.random.seed(0)
        made = build(config)
        for name, value in drawn(mx.random.normal):
            kind = getattr(mx, dtype) if narrow(name) else mx.float32
            made.load_weights([(name, value.astype(kind))], strict=False)
            mx.eval(made.parameters())
        return made
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    state = {
        name: value.to(getattr(torch, dtype) if narrow(name) else torch.float32)
        for name, value in drawn(lambda shape: torch.randn(shape, device=device))
    }
    with torch.device("meta"):
        made = build(config)
    made.load_state_dict(state, assign=True)
    return made.to(device).eval().requires_grad_(False)


def joined(side: str, built: Any, config: Any, texts: int, steps: int) -> Any:
    """Allocate slots and let all texts join."""
    package, random = "mlx_port" if side == "mlx" else "torch_ref", np.random.default_rng(0)
    if isinstance(config, FirstStageConfig):
        end = config.vocab_size - 1
        slots = import_module(f"{package}.metavoice.slots").make_slots(
            built, texts=texts, rows=most_rows(texts), room=PROMPT + steps + 8, end_of_text=end
        )
        for slot in range(texts):
            ids = random.integers(2049, config.vocab_size, PROMPT).astype(np.int32)
            voice = random.normal(0, 0.06, config.speaker_embedding_size).astype(np.float32)
            slots.join(slot, Joining(ids, voice, FirstStageSampling(), HostNoise(slot)))
        return slots
    first = MARS5_TEXT_IDS if config is MARS5_AR else 400
    slots = import_module(f"{package}.mars5.slots").make_slots(
        built, texts=texts, room=PROMPT + steps + 8, lowest=first - 1, end=config.vocab_size - 1
    )
    options = Mars5Options(generate_max_len_override=PROMPT + steps + 8)
    for slot in range(texts):
        ids = random.integers(0, first, PROMPT).astype(np.int32)
        codes = random.integers(0, 1024, (config.n_codebooks, 75)).astype(np.int32)
        prompt = CodecPrompt(ids, PROMPT, 100, PROMPT + 1)
        slots.join(slot, Mars5Joining(prompt, codes, options, HostNoise(slot)))
    return slots


def measure(slots: Any, steps: int) -> float:
    """Run the steps as a session does. Returns milliseconds per step after the first fifth."""
    pending, read, started = deque[Any](), 0, 0.0
    first = steps // 5
    launched = 0
    while read < steps:
        while launched < steps and len(pending) <= slots.ahead:
            pending.append(slots.launch(slots.steps))
            launched += slots.steps
        read += len(slots.read(pending.popleft()))
        if not started and read >= first:
            first, started = read, time.perf_counter()
    return 1000 * (time.perf_counter() - started) / (read - first)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="metavoice,mars5")
    parser.add_argument("--size", choices=("full", "tiny"), default="tiny")
    parser.add_argument("--side", default="torch,mlx")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--texts", default="1,4,8,32")
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    print(f"{platform.machine()}, {args.size}, {args.dtype}, {args.steps} steps")
    print(f"{'model':10} {'side':6} {'texts':>5} {'ms/step':>8} {'ids/s':>8}")
    for model in args.model.split(","):
        config = CONFIGS[model][args.size]
        for side in args.side.split(","):
            built = network(side, config, args.dtype)
            for texts in map(int, args.texts.split(",")):
                step = measure(joined(side, built, config, texts, args.steps), args.steps)
                print(f"{model:10} {side:6} {texts:5} {step:8.2f} {1000 * texts / step:8.0f}", flush=True)


if __name__ == "__main__":
    main()
