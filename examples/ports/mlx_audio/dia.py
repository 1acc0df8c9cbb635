"""mlx-audio's Dia, for `mlx-port verify --with mlx-audio FOLDER --codec DAC`.

FOLDER: nari-labs' v0.1 as mlx-community publishes it.
DAC: mlx-community's descript-audio-codec-44khz; without it, mlx-audio gets that from the hub.
"""

# pyright: reportMissingImports=false

from typing import Any
from unittest.mock import patch

import mlx.core as mx
from mlx_audio.codec.models.descript import dac
from mlx_audio.lm.models.cache import KVCache
from mlx_audio.tts.models.dia.dia import Model
from mlx_audio.utils import load_config

distribution = "mlx-audio"

ENCODER = ("layers.{}.self_attention", "layers.{}.mlp", "layers.{}", "norm")
names = {
    "dia": {f"model.{side}.{m}": f"model.{side}.{m}" for side in ("encoder", "decoder") for m in ENCODER},
    "codec encoder": {"encoder.block.{}": lambda n: f"dac_model.encoder.block.layers.{n + 1}"},
    "codec decoder": {
        "decoder.conv1": "dac_model.decoder.model.layers.0",
        "decoder.block.{}": lambda n: f"dac_model.decoder.model.layers.{n + 1}",
    },
}
turned = ["encoder.block.{}", "decoder.conv1", "decoder.block.{}"]


def load(folder, codec):
    """Layers cast to the type in the configuration, bfloat16 by default."""
    config = load_config(folder)
    config["training"] = config.get("training", {}) | {"dtype": "float32"}
    fetch = dac.fetch_from_hub if codec is None else lambda _: codec
    with patch.object(dac, "fetch_from_hub", fetch):
        model = Model(config)
    weights: Any = mx.load(str(folder / "model.safetensors"))
    model.load_weights([(name, value.astype(mx.float32)) for name, value in weights.items()])
    model.eval()
    return model


def read(model, text, positions, mask):
    """Encode a text, (1, S) ids."""
    return model.model.encoder(text, src_positions=positions, deterministic=True, attn_mask=mask)


def logits(model, given, encoded, positions, heard):
    """Read rows, the conditional ones first. heard: mask of the text, (2, S)."""
    decoder, tokens, made = model.model.decoder, mx.array(given["tokens"]), []
    source = decoder.precompute_cross_attention_kv(encoded, positions)
    cache = [KVCache() for _ in decoder.layers]
    for start, stop in given["passes"]:
        seen = mx.ones((2, stop - start), mx.bool_)
        at = mx.broadcast_to(mx.arange(start, stop)[None], (2, stop - start))
        cross = model._create_attn_mask(seen, heard)
        if start:
            piece = decoder.decode_step(tokens[:, start:stop], at, encoded, None, cross, cache, source)
        else:
            mask = model._create_attn_mask(seen, seen, is_causal=True)
            rows = tokens[:, start:stop]
            piece = decoder(rows, encoded, at, positions, True, mask, cross, cache, source)
        made.append(piece)
    return {"logits": made}


def unpadded(model, given):
    """Each text as long as it is; the unconditional one is one zero, whose encoding is repeated."""
    ids = mx.array(given["ids"])[None]
    positions = mx.arange(ids.shape[1])[None]
    nothing = read(model, mx.zeros((1, 1), mx.int32), positions[:, :1], None)
    text = read(model, ids, positions, None)
    encoded = mx.concatenate([text, mx.repeat(nothing, ids.shape[1], axis=1)])
    both = mx.concatenate([positions, positions])
    return logits(model, given, encoded, both, mx.ones(both.shape, mx.bool_))


def padded(model, given):
    """As `generate` does: padded to the longest text, with the mask of the conditional text for both."""
    ids, positions, heard, mask = model._prepare_text_input(given["text"])
    both = [mx.concatenate([one, one]) for one in (positions, heard, mask)]
    encoded = read(model, mx.concatenate([ids, mx.zeros_like(ids)]), both[0], both[2])
    return logits(model, given, encoded, both[0], both[1])


def encode(model, given):
    return {"codes": model.dac_model.encode(mx.array(given["samples"])[:, None])[1]}


def decode(model, given):
    latents = model.dac_model.quantizer.from_codes(mx.array(given["codes"]))[0]
    return {"samples": model.dac_model.decode(latents)[..., 0]}


calls = {"dia": unpadded, "dia, prepared text": padded, "codec encoder": encode, "codec decoder": decode}
