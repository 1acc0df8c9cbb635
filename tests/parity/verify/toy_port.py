"""An adapter of a toy port: MLX's speaker encoder and codec of Qwen3-TTS, for verify --with."""

import mlx.core as mx

from mlx_port.qwen3.pipeline import Qwen3Pipeline

distribution = "toy-port"
LAYERS = ("pre_transformer.layers.{}", "pre_transformer.layers.{}.self_attn", "pre_transformer.layers.{}.mlp")
CONVOLUTIONS = ("pre_conv", "pre_transformer", "upsample.{}.{}", "decoder.{}")
names = {
    "speaker": {f"speaker_encoder.{m}": f"network.speaker_encoder.{m}" for m in ("blocks.{}", "mfa", "fc")},
    "codec decoder": {f"decoder.{m}": f"codec.decoder.{m}" for m in (*LAYERS, *CONVOLUTIONS)},
}
turned = ["speaker_encoder.blocks.{}", "speaker_encoder.mfa", "speaker_encoder.fc"]
turned += [f"decoder.{m}" for m in CONVOLUTIONS]


def load(folder, codec):
    return Qwen3Pipeline.load(folder, dtype="float32").engine


def decode(model, given):
    samples, _ = model.codec.decode_piece(given["codes"], None)
    return {"samples": samples, "samples after the port's trim": samples}


calls = {
    "speaker": lambda model, given: {"vector": model.network.speaker_encoder(mx.array(given["mel"]))},
    "codec decoder": decode,
}
