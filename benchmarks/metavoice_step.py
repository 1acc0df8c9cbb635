"""Measure milliseconds per token of MetaVoice's first stage: both forms of torch_ref, and mlx_port.

    python benchmarks/metavoice_step.py [--size full|tiny] [--side torch,mlx] [--dtype bfloat16]
    [--form captured,plain] [--bits 16,8,4] [--guidance 3,1] [--tokens 40,640]

The weights are random at the published shape; `tiny` is for a CPU. A step is one token of one text, sampling
included; guidance 3 computes two rows, guidance 1 one. The time is the difference of two lengths, so that
reading the text, the first step and any capture or compilation cancel out; the column `start` reports these.
`floor` is the time to read the weights once at the rate of a memory copy measured here. Real time is 6.67 ms
a token: 150 tokens are a second of speech.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import metadata
from typing import Any

import numpy as np

from benchmarks.lib.random_networks import gpu, network, usual
from benchmarks.lib.timing import arguments, copy_rate, machine, step
from tts_core.metavoice.config import FirstStageConfig, is_quantisable
from tts_core.metavoice.inputs import FirstStageSampling, MetaVoiceInputs
from tts_core.metavoice.model import METAVOICE_FIRST_STAGE
from tts_core.nn.noise import HostNoise

RUNS = 3
TEXT_TOKENS = 60
TINY = replace(
    METAVOICE_FIRST_STAGE,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=2,
    speaker_embedding_size=16,
)
Generate = Callable[[float, int], None]  # guidance, tokens


def law(name: str, shape: tuple[int, ...]) -> tuple[float, float]:
    return (0, 0.1) if ".wte" in name or ".wpe." in name else usual(name, shape)


def read_each_step(name: str) -> bool:
    """Return False for tensors that a step reads in part or not at all: positions, speaker projection."""
    return ".wpe." not in name and not name.startswith("speaker_cond_pos")


def generator(make_slots: Callable[..., Any], network: Any, config: FirstStageConfig) -> Generate:
    """Run one text in slots of its own. Runs go on past the end of audio: every one has its full length."""
    random = np.random.default_rng(0)
    prompt = random.integers(2049, config.vocab_size, TEXT_TOKENS).astype(np.int32)
    speaker = random.normal(0, 0.06, config.speaker_embedding_size).astype(np.float32)

    def generate(guidance: float, tokens: int) -> None:
        sampling = FirstStageSampling(cfg_scale=guidance)
        capacity, end_of_text = TEXT_TOKENS + tokens, config.vocab_size - 1
        slots = make_slots(network, texts=1, rows=sampling.rows, capacity=capacity, end_of_text=end_of_text)
        slots.join({0: MetaVoiceInputs(prompt, speaker, sampling, HostNoise(1))})
        assert tokens % slots.steps == 0
        launched = deque(slots.launch(slots.steps) for _ in range(1 + slots.ahead))
        for _ in range(tokens // slots.steps - len(launched)):
            slots.read(launched.popleft())
            launched.append(slots.launch(slots.steps))
        for item in launched:
            slots.read(item)

    return generate


def torch_side(config: FirstStageConfig, dtype: str, forms: list[str]) -> list[tuple[str, Generate, float]]:
    """Build each form: name, function, floor in ms."""
    import torch

    from torch_ref.cuda.metavoice.decoder import make_slots
    from torch_ref.metavoice import decoder

    torch.backends.cuda.matmul.allow_tf32 = False
    device = gpu()
    built = network("torch", "metavoice", config, dtype, device=device, law=law)
    size = sum(value.nbytes for name, value in built.named_parameters() if read_each_step(name))
    floor = 1000 * size / copy_rate("torch")
    every = {"captured": make_slots, "plain": decoder.make_slots}
    where = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    return [
        (
            f"torch_ref {torch.__version__} {dtype} {form}, {where}",
            generator(every[form], built, config),
            floor,
        )
        for form in (forms if device == "cuda" else ["plain"])
    ]


def mlx_side(config: FirstStageConfig, dtype: str, bits: int) -> tuple[str, Generate, float]:
    import mlx.core as mx
    from mlx import nn
    from mlx.utils import tree_flatten

    from mlx_port.metavoice.decoder import make_slots

    built = network("mlx", "metavoice", config, dtype, law=law)
    if bits < 16:
        nn.quantize(
            built,
            group_size=64,
            bits=bits,
            class_predicate=lambda path, _: is_quantisable(f"{path}.weight"),
        )
        mx.eval(built.parameters())
    flat: Any = tree_flatten(built.parameters())
    size = sum(array.nbytes for name, array in flat if read_each_step(name))
    name = (
        f"mlx_port {metadata.version('mlx')} {f'{bits}-bit' if bits < 16 else dtype}, {mx.default_device()}"
    )
    return name, generator(make_slots, built, config), 1000 * size / copy_rate("mlx")


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--size", choices=("full", "tiny"), default="tiny")
    parser.add_argument("--side", default="torch,mlx")
    parser.add_argument("--dtype", default="bfloat16", choices=("float32", "bfloat16", "float16"))
    parser.add_argument("--form", default="captured,plain", help="forms of torch_ref on a GPU")
    parser.add_argument("--bits", default="16,8,4", help="bits of mlx_port's weights; 16 is --dtype")
    parser.add_argument("--guidance", default="3,1")
    parser.add_argument("--tokens", default="40,640", help="tokens of the shorter and the longer run")
    args = parser.parse_args()
    config = METAVOICE_FIRST_STAGE if args.size == "full" else TINY
    short, long = map(int, args.tokens.split(","))
    print(machine())
    print(f"first stage, {args.size}, {TEXT_TOKENS} ids of text, {short} and {long} tokens, median of {RUNS}")
    print(f"{'side':<60} {'guidance':>8} {'ms/token':>9} {'floor':>7} {'start s':>8}", flush=True)
    sides: list[Callable[[], list[tuple[str, Generate, float]]]] = []
    if "torch" in args.side:
        sides.append(lambda: torch_side(config, args.dtype, args.form.split(",")))
    if "mlx" in args.side:
        sides += [
            lambda bits=bits: [mlx_side(config, args.dtype, bits)] for bits in map(int, args.bits.split(","))
        ]
    for side in sides:
        for name, generate, floor in side():
            for guidance in map(float, args.guidance.split(",")):
                took, start, _ = step(partial(generate, guidance), (short, long), RUNS)
                print(f"{name:<60} {guidance:>8g} {took:>9.3f} {floor:>7.3f} {start:>8.2f}", flush=True)


if __name__ == "__main__":
    main()
