"""mlx-audio's Dia, nari-labs' v0.1 as mlx-community publishes it: mlx-port verify --with mlx-audio FOLDER.

With `--codec DAC`, mlx-community's descript-audio-codec-44khz; without it, mlx-audio gets that from the hub.
"""

# pyright: reportMissingImports=false

from unittest.mock import patch

import mlx.core as mx
from mlx_audio.codec.models.descript import dac
from mlx_audio.lm.models.cache import KVCache
from mlx_audio.tts.models.dia.dia import Model
from mlx_audio.utils import load_config

distribution = "mlx-audio"
names = {
    "dia": {r"model\.(en|de)coder\.(layers\.\d+(\.self_attention|\.mlp)?|norm)": r"\g<0>"},
    "codec encoder": {rf"encoder\.block\.{n}": f"dac_model.encoder.block.layers.{n + 1}" for n in range(4)},
    "codec decoder": {r"decoder\.conv1": "dac_model.decoder.model.layers.0"}
    | {rf"decoder\.block\.{n}": f"dac_model.decoder.model.layers.{n + 1}" for n in range(4)},
}
turned = [*names["codec encoder"], *names["codec decoder"]]


def load(folder, codec):
    config = load_config(folder) | {"training": {"dtype": "float32"}}  # to which layers cast
    with patch.object(dac, "fetch_from_hub", dac.fetch_from_hub if codec is None else lambda _: codec):
        model = Model(config)
    model.load_weights(str(folder / "model.safetensors"))
    model.set_dtype(mx.float32)
    return model


def speak(model, given, ids, positions, mask, memory):
    """Read the texts, the unconditional one first, then rows, its own last. memory: mask of the texts."""
    decoder, made, cache = model.model.decoder, [], [KVCache() for _ in model.model.decoder.layers]
    texts = [model.model.encoder(token, positions[:, : token.shape[1]], True, mask) for token in ids]
    encoded = mx.concatenate([mx.broadcast_to(text, texts[-1].shape) for text in reversed(texts)])
    positions = mx.broadcast_to(positions, encoded.shape[:2])
    source = decoder.precompute_cross_attention_kv(encoded, positions)
    for start, stop in given["passes"]:
        rows, seen = given["tokens"][:, start:stop], mx.ones((2, stop - start), mx.bool_)
        at, cross = mx.broadcast_to(mx.arange(start, stop), seen.shape), model._create_attn_mask(seen, memory)
        mask = model._create_attn_mask(seen, seen, is_causal=True)
        if start:
            made.append(decoder.decode_step(rows, at, encoded, None, cross, cache, source))
        else:
            made.append(decoder(rows, encoded, at, positions, True, mask, cross, cache, source))
    return {"logits": made}


def unpadded(model, given):
    """Each text as long as it is; the unconditional one is one zero, whose encoding is repeated."""
    ids = given["ids"][None]
    encoded = mx.ones((2, ids.shape[1]), mx.bool_)
    return speak(
        model, given, [mx.zeros((1, 1), mx.int32), ids], mx.arange(ids.shape[1])[None], None, encoded
    )


def padded(model, given):
    """As `generate` does: padded to the longest text, with the mask of the conditional text for both."""
    ids, positions, encoded, mask = model._prepare_text_input(given["text"])
    return speak(model, given, [mx.zeros_like(ids), ids], positions, mask, mx.concatenate([encoded, encoded]))


def decode(model, given):
    codec = model.dac_model
    return {"samples": codec.decode(codec.quantizer.from_codes(given["codes"])[0])[..., 0]}


def encode(model, given):
    return {"codes": model.dac_model.encode(given["samples"][:, None])[1]}


calls = {"dia": unpadded, "dia, prepared text": padded, "codec encoder": encode, "codec decoder": decode}
