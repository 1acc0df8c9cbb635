"""mlx-audio's Qwen3-TTS, for `mlx-port verify --with mlx-audio FOLDER`."""

# pyright: reportMissingImports=false

from unittest.mock import patch

import mlx.core as mx
from mlx_audio.tts.utils import load_model

distribution = "mlx-audio"
LAYER, SAME = r"layers\.\d+(\.self_attn|\.mlp)?", r"\g<0>"
CODEC, OURS = "speech_tokenizer.encoder_model", r"encoder\.encoder_transformer"
SEANET = r"encoder\.encoder\.layers\."
DECODER = r"decoder\.(pre_conv|pre_transformer|upsample\.\d+\.\d+|decoder\.\d+)"
names = {
    "talker": {rf"talker\.model\.({LAYER}|norm)": SAME},
    "predictor": {rf"talker\.code_predictor\.model\.{LAYER}": SAME},
    "speaker": {r"speaker_encoder\.(blocks\.\d+|mfa|asp)": SAME},
    "codec encoder": {  # our list has the activations, theirs groups the layers by rate
        rf"{SEANET}0": f"{CODEC}.encoder.init_conv1d",
        **{rf"{SEANET}{3 * n + 1}": f"{CODEC}.encoder.layers.{n}.residuals.0" for n in range(4)},
        **{rf"{SEANET}{3 * n + 3}": f"{CODEC}.encoder.layers.{n}.downsample" for n in range(4)},
        rf"{SEANET}14": f"{CODEC}.encoder.final_conv1d",
        rf"{OURS}(\.layers\.\d+(\.self_attn)?)": rf"{CODEC}.encoder_transformer.transformer\1",
        rf"{OURS}(\.layers\.\d+)\.mlp": rf"{CODEC}.encoder_transformer.transformer\1.gating",
        r"encoder\.downsample": f"{CODEC}.downsample",
    },
    "codec decoder": {
        pattern: r"speech_tokenizer.\g<0>" for pattern in (rf"decoder\.pre_transformer\.{LAYER}", DECODER)
    },
}
turned = [DECODER]


def load(folder, codec):
    with patch.object(mx, "compile", lambda network, **_: network):  # it hides the decoder's modules
        model = load_model(folder, strict=True)
    model.set_dtype(mx.float32)
    return model


def talker(model, given):
    """As in `generate`: the whole text is read first, and padding is added to each frame."""
    network, cache, codes, made = model.talker, model.talker.make_cache(), given["codes"], []
    prompt, _, padding = model._prepare_generation_inputs(
        given["text"], given["language"], speaker=given["voice"], instruct=given["instruct"]
    )
    embeddings = [network.get_input_embeddings(), *network.code_predictor.codec_embedding]
    frames = padding
    for q, embed in enumerate(embeddings):
        frames = frames + embed(codes[:, q])
    for start, stop in given["passes"]:
        read = frames[:, start:stop] if made else mx.concatenate([prompt, frames[:, :stop]], axis=1)
        made.append(network(read, cache=cache))
    return {"prompt": prompt, "hidden": [sound[1] for sound in made], "logits": [sound[0] for sound in made]}


def predictor(model, given):
    network, codes, logits = model.talker.code_predictor, given["codes"], []
    cache, embeddings = network.make_cache(), [model.talker.get_input_embeddings(), *network.codec_embedding]
    read = mx.concatenate([given["hidden"], embeddings[0](codes[:, :1])], axis=1)
    for stage in range(codes.shape[1] - 1):
        logits.append(network(read, cache=cache, generation_step=stage)[0][:, -1])
        read = embeddings[stage + 1](codes[:, stage + 1 : stage + 2])
    return {"logits": logits}


def encode(model, given):
    codec = model.speech_tokenizer  # returns 16 codebooks for every configuration; those published read 16
    return {"codes": codec.encode(given["samples"][:, None])[:, : codec.encoder_valid_num_quantizers]}


def decode(model, given):
    """Samples, and those that `generate` keeps of them."""
    [samples], [length] = model.speech_tokenizer.decode(given["codes"].swapaxes(1, 2))
    spoken = samples[: int(length)] if 0 < int(length) < len(samples) else samples
    return {"samples": samples[None], "samples after the port's trim": spoken[None]}


calls = {
    "talker": talker,
    "predictor": predictor,
    "speaker": lambda model, given: {"vector": model.speaker_encoder(given["mel"])},
    "codec encoder": encode,
    "codec decoder": decode,
}
