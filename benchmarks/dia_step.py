"""Measure milliseconds per decoder step of Dia: torch_ref, mlx_port and peers, in one run.

    python benchmarks/dia_step.py [--size full|voice] [--side torch,mlx,transformers,mlx-audio,nari]
        [--dtype bfloat16] [--batch 1,8] [--frames 200,1000] [--runs 3] [--nari FOLDER]

`full` is Dia-1.6B's shape with random weights, `voice` the embedded voice. A step is one row of every text in
the batch with guidance on, sampling included. The time is the difference of two lengths, so that reading the
text, the first step and any capture or compilation cancel out; the column `start` reports these, and
`again` these in a process that has spoken. `linear layers` is the time of a step's matrix products of two
rows by themselves, in one CUDA graph: a yardstick of the machine. Real time is 11.6 ms a step for
44.1 kHz Dia.

--nari names a copy of nari-labs/dia, whose step is compiled as its use_torch_compile does; its first run
takes minutes.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module, metadata
from typing import Any

from benchmarks.lib.checkpoints import DIA_CONFIG
from benchmarks.lib.dia_networks import FULL, SPECIAL, TEXT, full_network, silent_end, transformers_rows
from benchmarks.lib.random_networks import gpu, network
from benchmarks.lib.timing import arguments, machine, step
from tts_core.codecs import dac
from tts_core.dia.config import is_norm, parameter_shapes
from tts_core.voice.embedded import CODEC, DIA

TINY_CODEC = dac.DacConfig(44100, 4, (2, 4, 8, 8), 16, 32, (8, 8, 4, 2), 9, 1024, (8,) * 9)

Generate = Callable[[int, int], int]  # (batch, frames) → steps run


def torch_side(size: str, dtype: Any) -> tuple[Generate, str]:
    import torch

    from torch_ref.codecs.dac import Dac
    from torch_ref.dia.pipeline import DiaPipeline, compose
    from torch_ref.loading import Parts

    torch.backends.cuda.matmul.allow_tf32 = False
    if size == "voice":
        pipeline = DiaPipeline.load(DIA, codec=CODEC, dtype=dtype)
    else:
        built = full_network(dtype)
        codec = Dac(TINY_CODEC).to(built.logits_dense.weight.device)
        pipeline = compose({"dia": built, "dac": codec}, **Parts.fastest("dia", codec))
    where = str(pipeline.engine.network.logits_dense.weight.device)
    return from_pipeline(pipeline), f"torch_ref {torch.__version__} {where}"


def mlx_side(size: str, dtype: Any) -> tuple[Generate, str]:
    import mlx.core as mx

    from mlx_port.codecs.dac import Dac
    from mlx_port.dia.pipeline import DiaPipeline, compose
    from mlx_port.stored_voice import converted_voice

    if size == "voice":
        pipeline = DiaPipeline.load(converted_voice(), dtype=dtype)
    else:
        built = network("mlx", "dia", FULL, dtype, edit=silent_end)
        pipeline = compose({"dia": built, "dac": Dac(TINY_CODEC)})
    return from_pipeline(pipeline), f"mlx_port {metadata.version('mlx')} {mx.default_device()}"


def from_pipeline(pipeline: Any) -> Generate:
    def generate(batch: int, frames: int) -> int:
        codes = pipeline.generate_codes([TEXT] * batch, max_frames=frames, seed=list(range(batch)))
        return max(item.shape[1] for item in codes) + pipeline.config.longest_delay

    return generate


def transformers_side(size: str, dtype: str) -> tuple[Generate, str]:
    import torch
    import transformers

    device = "cuda" if torch.cuda.is_available() else "cpu"
    kind = getattr(torch, dtype)
    if size == "voice":
        model: Any = transformers.DiaForConditionalGeneration.from_pretrained(DIA, dtype=kind)
    else:
        torch.manual_seed(0)
        sizes: dict[str, Any] = FULL.to_dict() | {"delay_pattern": list(FULL.delay_pattern)}
        sizes = {name: value for name, value in sizes.items() if name not in ("cross_rope", "sampling")}
        with torch.device(device):
            model = transformers.DiaForConditionalGeneration(transformers.DiaConfig(**sizes)).to(kind)
        model.generation_config.update(**SPECIAL)
    model.to(device).eval()

    def generate(batch: int, frames: int) -> int:
        return transformers_rows(model, TEXT, batch, frames).shape[1] - 1

    return generate, f"transformers {transformers.__version__} {device}"


def mlx_audio_side(size: str, dtype: str) -> tuple[Generate, str]:
    import mlx.core as mx
    from mlx.utils import tree_flatten

    peer: Any = import_module("mlx_audio.tts.models.dia.dia")

    if size != "full":
        raise SystemExit("mlx-audio does not read the transformers layout: use --size full")
    peer.DAC.from_pretrained = lambda *_: None  # the codec is not part of a step; do not download it
    peer.codebook_to_audio = lambda *_, **__: mx.zeros((1, 1))
    model = peer.Model(DIA_CONFIG)
    kind = getattr(mx, dtype)
    mx.random.seed(0)
    parameters: Any = tree_flatten(model.model.parameters())
    for name, value in parameters:
        fan_in = value.shape[0] if value.ndim > 1 else 1
        random = mx.random.normal(value.shape)
        random = random * 0.1 + 1 if "norm" in name else random * (0.5 if "embed" in name else fan_in**-0.5)
        model.model.load_weights([(name, random.astype(kind))], strict=False)
        mx.eval(model.model.parameters())

    def generate(batch: int, frames: int) -> int:
        if batch > 1:
            raise SystemExit("mlx-audio does not batch texts: use --batch 1")
        return model._generate(TEXT, max_tokens=frames)[1]

    return generate, f"mlx-audio {metadata.version('mlx-audio')} {mx.default_device()}"


def nari_side(size: str, dtype: str, folder: str | None = None) -> tuple[Generate, str]:
    import torch

    if size != "full" or folder is None:
        raise SystemExit("nari: give --size full, and its folder with --nari")
    sys.path.insert(0, folder)
    peer: Any = import_module("dia.model")
    config: Any = import_module("dia.config")
    parts = {"encoder_config": config.EncoderConfig(), "decoder_config": config.DecoderConfig()}
    model = peer.Dia(config.DiaConfig(**parts), dtype, torch.device("cuda"), load_dac=False)
    model._generate_output = lambda *_: [None, None]  # the codec is not part of a step
    torch.manual_seed(0)
    with torch.no_grad():
        for name, value in model.model.named_parameters():
            random = torch.randn(value.shape, device="cuda")
            fan_in = value.shape[0]
            random = (
                random * 0.1 + 1 if "norm" in name else random * (0.5 if "embed" in name else fan_in**-0.5)
            )
            value.data = random.to(value.dtype)
            if name.startswith("decoder.logits_dense"):
                value.data[..., FULL.eos_token_id] = 0
    model.model.to("cuda").eval()
    # its use_torch_compile also compiles the reading of the text, for a minute or more; no part of a step
    model._decoder_step = torch.compile(model._decoder_step, fullgraph=True, mode="max-autotune")
    model._compiled = True

    def generate(batch: int, frames: int) -> int:
        model.generate([TEXT] * batch, max_tokens=frames, use_torch_compile=True)
        return frames

    return generate, f"nari-labs/dia, compiled, torch {torch.__version__}"


GENERATORS: dict[str, Callable[..., tuple[Generate, str]]] = {
    "torch": torch_side,
    "mlx": mlx_side,
    "transformers": transformers_side,
    "mlx-audio": mlx_audio_side,
    "nari": nari_side,
}


def linear_layers(rows: int, dtype: str) -> float:
    """Milliseconds of a full step's matrix products by themselves, in one CUDA graph."""
    import torch

    shapes = [shape for name, shape in parameter_shapes(FULL).items() if _in_a_step(name)]
    weights = [torch.randn(shape, device="cuda", dtype=getattr(torch, dtype)) for shape in shapes]
    x = {width: torch.randn(rows, width, device="cuda", dtype=getattr(torch, dtype)) for _, width in shapes}

    def run() -> None:
        for weight in weights:
            torch.nn.functional.linear(x[weight.shape[1]], weight)

    for _ in range(3):
        run()
    torch.cuda.synchronize()
    graph, times = torch.cuda.CUDAGraph(), []
    with torch.cuda.graph(graph):
        run()
    for _ in range(20):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        stop.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(stop))
    return statistics.median(times[5:])


def _in_a_step(name: str) -> bool:
    """Return True if every step multiplies by this weight; keys and values of the text are projected once."""
    once = "cross_attention.k_proj" in name or "cross_attention.v_proj" in name
    inside = name.startswith("logits_dense") or (".decoder.layers." in name and not is_norm(name))
    return inside and not once


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--size", choices=("full", "voice"), default="voice")
    parser.add_argument("--side", default="torch,mlx,transformers")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16", "float16"))
    parser.add_argument("--batch", default="1")
    parser.add_argument("--frames", help="200,1000; of the voice, which ends earlier, 100,300")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--nari", metavar="FOLDER")
    args = parser.parse_args()
    default = "200,1000" if args.size == "full" else "100,300"
    short, long = map(int, (args.frames or default).split(","))
    print(machine())
    print(f"Dia {args.size}, {args.dtype}, {len(TEXT)} bytes of text, steps {short} to {long}")
    print(f"median of {args.runs} runs")
    if args.size == "full" and "torch" in args.side and gpu() == "cuda":
        print(f"linear layers, 2 rows: {linear_layers(2, args.dtype):.3f} ms")
    print(f"{'side':<45} {'batch':>5} {'ms/step':>9} {'start s':>8} {'again s':>8}")
    for side in args.side.split(","):
        extra = {"folder": args.nari} if side == "nari" else {}
        generate, name = GENERATORS[side](args.size, args.dtype, **extra)
        for batch in map(int, args.batch.split(",")):
            found = step(partial(generate, batch), (short, long), args.runs)
            print(
                f"{name:<45} {batch:>5} {found.milliseconds:>9.3f} {found.start:>8.2f} {found.again:>8.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
