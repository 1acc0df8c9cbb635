"""EnCodec and Vocos, which MARS5 and MetaVoice share: what is run, and on what."""

from __future__ import annotations

import numpy as np

from mlx_port.commands.verify.inputs import Given, no_codes, signal
from mlx_port.commands.verify.ladder import Rung
from tts_core.codecs.layer_order import encodec_decode_stages, encodec_encode_stages, vocos_stages
from tts_core.nn.layer_order import State

KBPS_6 = 2  # the bandwidth that both models set Vocos's norms to


def codec_rungs(given: Given) -> list[Rung]:
    """EnCodec there and back with all its codebooks, Vocos on as many as it has."""
    codec, layers = given.configs["encodec"], "codecs.layerwise:EncodecLayers"
    return [
        Rung("codec", "encodec", layers, encodec_encode_stages(codec), _heard, keeps=("codes",)),
        Rung(
            "codec",
            "encodec",
            layers,
            encodec_decode_stages(codec),
            lambda given: {"codes": given.made["codes"]},
            keeps=("latents", "audio"),
        ),
        Rung("vocoder", "vocos", "codecs.layerwise:VocosLayers", vocos_stages(given.configs["vocos"]), _said),
    ]


def _heard(given: Given) -> State:
    codec = given.configs["encodec"]
    samples = signal(codec, given.seconds, given.seed)
    return {"hidden": samples[:, None], "codes": no_codes(samples, codec.hop_length)}


def _said(given: Given) -> State:
    vocoder, codes = given.configs["vocos"], given.made["codes"]
    return {
        "codes": codes[:, : vocoder.n_codebooks],
        "bandwidth": np.array(min(KBPS_6, vocoder.num_bandwidths - 1), np.int32),
    }
