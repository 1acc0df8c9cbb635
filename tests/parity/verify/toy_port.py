"""An adapter of a toy port: MLX's speaker encoder and codec of Qwen3-TTS, for verify --with."""

import numpy as np

from mlx_port.qwen3.pipeline import Qwen3Pipeline

distribution = "toy-port"
LAYERS = r"decoder\.pre_transformer\.layers\.\d+(\.self_attn|\.mlp)?"
SPEAKER = r"speaker_encoder\.(blocks\.\d+|mfa|fc)"
CONVOLUTIONS = r"decoder\.(pre_conv|pre_transformer|upsample\.\d+\.\d+|decoder\.\d+)"
names = {
    "speaker": {SPEAKER: r"network.\g<0>"},
    "codec decoder": dict.fromkeys((LAYERS, CONVOLUTIONS), r"codec.\g<0>"),
}
turned = [SPEAKER, CONVOLUTIONS]


def load(folder, codec):
    return Qwen3Pipeline.load(folder, dtype="float32").engine


def decode(model, given):
    samples, _ = model.codec.decode_window(np.array(given["codes"]), None)
    return {"samples": samples, "samples after the port's trim": samples}


calls = {
    "speaker": lambda model, given: {"vector": model.network.speaker_encoder(given["mel"])},
    "codec decoder": decode,
}
