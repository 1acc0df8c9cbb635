"""Serve a model of published size with random weights on an NVIDIA GPU, for `mlx-port bench --server`.

    python benchmarks/random_server.py [--model dia|dia2|qwen3] [--size REPOSITORY]
        [--codec-precision float32|tf32|bfloat16] [--dtype bfloat16] [--port 8000] [--places 64]

It is `mlx-port serve` but for its weights: speech does not end by itself, so bound it, as with
`--body '{"max_seconds": 4}'`.
"""

from __future__ import annotations

import json
from typing import Any
from unittest import mock

from benchmarks.lib.timing import arguments
from mlx_port.commands.loading_flags import Loading
from mlx_port.commands.serve import run
from mlx_port.commands.serve.settings import Access, Settings
from tts_core import models
from tts_core.qwen3.tokenizer import MERGES, VOCABULARY
from tts_core.serving.source import ModelSource
from tts_core.text.byte_bpe import byte_signs

SIZES = {"dia": "nari-labs/Dia-1.6B-0626", "dia2": "nari-labs/Dia2-2B"}
SIZES["qwen3"] = "Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice"


def dia(configs: Any, dtype: str) -> Any:
    from benchmarks.lib.dia_networks import full_pipeline

    return full_pipeline(dtype)


def dia2(configs: Any, dtype: str) -> Any:
    from benchmarks.lib.dia2_networks import engine
    from torch_ref.dia2.pipeline import Dia2Pipeline

    return Dia2Pipeline(engine("torch", configs["dia2"], dtype)[0])


def qwen3(configs: Any, dtype: str) -> Any:
    from benchmarks.lib import qwen3_networks
    from torch_ref.loading import Parts
    from torch_ref.qwen3.pipeline import compose

    network, codec = qwen3_networks.networks("torch", configs["qwen3"], dtype, "cuda")
    own = documents("qwen3", configs)
    return compose({"qwen3": network, "qwen3_codec": codec}, own, **Parts.fastest("qwen3", codec))


def documents(model: str, configs: Any) -> Any:
    """Build a model's documents; Qwen3-TTS's vocabulary has the published size, 151,643 tokens."""
    made = models.MODELS[model].speed.documents(configs)
    if model == "qwen3":
        signs, made = byte_signs(), {kind: dict(own) for kind, own in made.items()}
        pairs = [(sign, other) for sign in signs for other in signs]
        pairs += [("".join(pair), sign) for pair in pairs for sign in signs]
        pairs = pairs[: 151_643 - len(signs)]
        tokens = [*signs, *map("".join, pairs)]
        made["qwen3"][VOCABULARY] = json.dumps({token: id for id, token in enumerate(tokens)})
        made["qwen3"][MERGES] = "\n".join(map(" ".join, pairs))
    return made


LOAD = {"dia": dia, "dia2": dia2, "qwen3": qwen3}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--model", choices=LOAD, default="dia")
    parser.add_argument("--size", help="repository of a published size; Qwen3-TTS's default is 0.6B")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--codec-precision", choices=("float32", "tf32", "bfloat16"), default="float32")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--places", type=int, default=64)
    args = parser.parse_args()

    sizes = models.MODELS[args.model].sizes
    size = args.size or SIZES[args.model]
    if size not in sizes or (args.model == "dia" and size != SIZES["dia"]):
        parser.error(f"--size: {size} is no size of {args.model}; give one of {', '.join(sizes)}")
    configs = sizes[size]

    def load() -> Any:
        pipeline = LOAD[args.model](configs, args.dtype)
        pipeline.engine.codec.precision = args.codec_precision
        return pipeline

    source = ModelSource(args.model, configs, documents(args.model, configs), load)
    settings = Settings(
        loading=Loading("torch", args.dtype, args.codec_precision),
        port=args.port,
        places=args.places,
        access=Access("127.0.0.1", None, (), ()),
    )
    with mock.patch.object(run, "sources", return_value={"tts-1": source}):
        raise SystemExit(run.run(settings, quiet=True))


if __name__ == "__main__":
    main()
