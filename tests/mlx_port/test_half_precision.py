"""In half precision every product takes the network's dtype.

PyTorch refuses a product of two dtypes; MLX silently widens it to float32 and so loses the time and memory
that half precision saves.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import mlx.core as mx
import pytest
from mlx import nn

import mlx_port.layers.attention
import mlx_port.mars5.encoder
from tests.sides import PORT
from tests.tiny.mars5_ar import deep_prompt, reference
from tests.tiny.mars5_nar import TEXT, codes
from tests.tiny.networks import ar_config, dia_config, first_stage_config, tiny

Seen = defaultdict[str, set[mx.Dtype]]


def dia(dtype: str) -> mx.array:
    """Two texts of unequal lengths and unconditional rows."""
    config = dia_config()
    network = PORT.network("dia", tiny(config), dtype)
    source = network.read([mx.array([5, 6, 7]), mx.array([5])], network.encode_empty())
    return network(mx.zeros((4, 2, 4), dtype=mx.int32), network.new_cache(), source)


def mars5(dtype: str) -> mx.array:
    config = ar_config()
    network = PORT.network("mars5", tiny(config), dtype)
    heard = reference(6, config)
    rows = network.rows(network.speaker(mx.array(heard.T[None])), mx.array(deep_prompt(heard).tokens[None]))
    count = rows.shape[1]
    return network(rows, network.positions(count)(0, count), network.new_cache(count))


def mars5_nar(dtype: str) -> mx.array:
    """With a speaker and without one."""
    network = PORT.network("mars5_nar", tiny("mars5_nar"), dtype)
    speakers = mx.concatenate([network.speaker(mx.array(codes(6).T[None])), network.no_speaker()])
    source = network.read(mx.array(TEXT[None]), speakers, frames=5, timesteps=9)
    return network(mx.array(codes(5).T[None]), source, mx.array([4]))


def metavoice(dtype: str) -> mx.array:
    config = first_stage_config()
    network = PORT.network("metavoice", tiny(config), dtype)
    heard = network.speakers(mx.ones((1, config.speaker_embedding_size)))
    return network(mx.array([[2050, 2060, 3]]), heard, network.new_cache(3))


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """Dtypes of the inputs of products, attention and norms."""
    found: Seen = defaultdict(set)

    def watch(owner: Any, name: str, what: str, place: int) -> None:
        original = getattr(owner, name)

        def watched(*args: Any, **options: Any) -> Any:
            found[what].add(args[place].dtype)
            return original(*args, **options)

        monkeypatch.setattr(owner, name, watched)

    watch(nn.Linear, "__call__", "products", 1)
    watch(nn.Embedding, "as_linear", "products", 1)
    watch(mlx_port.mars5.encoder, "_some_rows", "products", 1)
    watch(mlx_port.layers.attention, "_trusted", "attention", 0)
    watch(mx.fast, "layer_norm", "layer norms", 0)
    watch(mx.fast, "rms_norm", "RMS norms", 0)
    return found


BFLOAT16, FLOAT16, WIDE = {mx.bfloat16}, {mx.float16}, {mx.float32}


@pytest.mark.parametrize(
    ("run", "own", "norms"),
    [
        (dia, BFLOAT16, {"RMS norms": BFLOAT16}),
        (dia, FLOAT16, {"RMS norms": FLOAT16}),
        (
            mars5,
            BFLOAT16,
            {"layer norms": WIDE, "RMS norms": BFLOAT16},
        ),  # of the speaker encoder, of the other layers
        (mars5, FLOAT16, {"layer norms": WIDE, "RMS norms": FLOAT16}),
        (mars5_nar, BFLOAT16, {"layer norms": WIDE}),
        (mars5_nar, FLOAT16, {"layer norms": WIDE}),
        (metavoice, BFLOAT16, {"RMS norms": BFLOAT16}),
        (metavoice, FLOAT16, {"RMS norms": WIDE}),
    ],
    ids=[
        f"{run}, {dtype}"
        for run in ("Dia", "MARS5", "MARS5's NAR", "MetaVoice")
        for dtype in ("bf16", "fp16")
    ],
)
def test_products_and_the_residual_stream(run: Any, own: set[mx.Dtype], norms: Any, seen: Seen) -> None:
    """Norms read the residual stream, which is float32 if half precision might overflow."""
    [dtype] = own
    logits = run("bfloat16" if dtype == mx.bfloat16 else "float16")
    assert seen == {"products": own, "attention": own, **norms}
    assert logits.dtype == mx.float32
    assert mx.isfinite(logits).all().item()
