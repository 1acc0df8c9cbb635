"""mlx-audio's Qwen3-TTS, for `mlx-port verify --with mlx-audio FOLDER`."""

# pyright: reportMissingImports=false

from unittest.mock import patch

import mlx.core as mx
from mlx_audio.tts.utils import load_model

distribution = "mlx-audio"

CODEC = "speech_tokenizer"
STACK = ("{}.self_attn", "{}.mlp", "{}")


def seanet(n):
    """Our list has the activations, theirs groups the layers by rate."""
    ends = {0: "init_conv1d", 13: None, 14: "final_conv1d"}  # 13: the last activation
    parts = {1: f"layers.{n // 3}.residuals.0", 0: f"layers.{n // 3 - 1}.downsample"}
    part = ends.get(n, parts.get(n % 3))
    return part and f"{CODEC}.encoder_model.encoder.{part}"


AT = "encoder.encoder_transformer.layers.{}"
THERE = f"{CODEC}.encoder_model.encoder_transformer.transformer.layers.{{}}"
DECODER = ("pre_conv", "pre_transformer", "upsample.{}.{}", "decoder.{}")
names = {
    "talker": {f"talker.model.{m}": f"talker.model.{m}" for m in (*(f"layers.{s}" for s in STACK), "norm")},
    "predictor": {
        f"talker.code_predictor.model.layers.{s}": f"talker.code_predictor.model.layers.{s}" for s in STACK
    },
    "speaker": {f"speaker_encoder.{m}": f"speaker_encoder.{m}" for m in ("blocks.{}", "mfa", "asp")},
    "codec encoder": {
        "encoder.encoder.layers.{}": seanet,
        f"{AT}.self_attn": f"{THERE}.self_attn",
        f"{AT}.mlp": f"{THERE}.gating",
        AT: THERE,
        "encoder.downsample": f"{CODEC}.encoder_model.downsample",
    },
    "codec decoder": {
        f"decoder.{m}": f"{CODEC}.decoder.{m}"
        for m in (*(f"pre_transformer.layers.{s}" for s in STACK), *DECODER)
    },
}
turned = [f"decoder.{m}" for m in DECODER]


def load(folder, codec):
    """The codec's decoder is not compiled: a compiled one hides its modules."""
    with patch.object(mx, "compile", lambda network, **_: network):
        model = load_model(folder, strict=True)
    model.set_dtype(mx.float32)
    return model


def talker(model, given):
    """As in `generate`: the whole text is read first, then padding is added to each frame."""
    frames = mx.array(given["codes"])
    cache = model.talker.make_cache()
    prompt, _, padding = model._prepare_generation_inputs(
        given["text"], given["language"], speaker=given["voice"], instruct=given["instruct"]
    )
    read, hidden, logits = prompt, [], []
    for frame in range(frames.shape[2] + 1):
        made = model.talker(read, cache=cache)
        logits.append(made[0])
        hidden.append(made[1])
        if frame < frames.shape[2]:
            codes = frames[:, :, frame : frame + 1]
            read = padding + model.talker.get_input_embeddings()(codes[:, 0])
            for q, embedding in enumerate(model.talker.code_predictor.codec_embedding):
                read = read + embedding(codes[:, q + 1])
    return {"prompt": prompt, "hidden": hidden, "logits": logits}


def predictor(model, given):
    network, codes = model.talker.code_predictor, mx.array(given["codes"])
    first = model.talker.get_input_embeddings()(codes[:, :1])
    x, cache, logits = mx.concatenate([mx.array(given["hidden"]), first], axis=1), network.make_cache(), []
    for stage in range(codes.shape[1] - 1):
        made, cache, _ = network(x, cache=cache, generation_step=stage)
        logits.append(made[:, -1])
        x = network.codec_embedding[stage](codes[:, stage + 1 : stage + 2])
    return {"logits": logits}


def encode(model, given):
    """It returns 16 codebooks for every configuration; those published read 16."""
    network = model.speech_tokenizer
    codes = network.encode(mx.array(given["samples"])[:, None])
    return {"codes": codes[:, : network.encoder_valid_num_quantizers]}


def decode(model, given):
    """Samples, and those that `generate` keeps of them."""
    [samples], [length] = model.speech_tokenizer.decode(mx.array(given["codes"]).swapaxes(1, 2))
    kept = samples[: int(length)] if 0 < int(length) < len(samples) else samples
    return {"samples": samples[None], "samples after the port's trim": kept[None]}


calls = {
    "talker": talker,
    "predictor": predictor,
    "speaker": lambda model, given: {"vector": model.speaker_encoder(mx.array(given["mel"]))},
    "codec encoder": encode,
    "codec decoder": decode,
}
