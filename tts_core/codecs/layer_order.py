"""The layers of the codecs and vocoders in order.

State: samples (B, L), hidden and latents (B, C, T), encodings (B, E, T), codes (B, Q, T), audio (B, L).
Vocos's also: bandwidth (1,), rows (B, T, D). MBD's also: band and step (1,), sound, processed and estimate
(B, L), latents of the codec, and skip0, skip1 .. (B, C, T), what each level leaves for the way up.
"""

from __future__ import annotations

from tts_core.codecs import encodec
from tts_core.codecs.dac import DacConfig
from tts_core.codecs.encodec import EncodecConfig
from tts_core.codecs.mbd import MbdConfig
from tts_core.codecs.vocos import VocosConfig
from tts_core.nn.layer_order import Stage, stage, stages


def dac_encode_stages(config: DacConfig) -> list[Stage]:
    """From samples to codes. A quantizer leaves in `latents` what the next one has to describe."""
    return [
        stage("encoder_input", "encoder.conv1", "hidden"),
        *stages("encoder_block", "encoder.block", len(config.downsampling_ratios), "hidden"),
        stage("encoder_output", "encoder.conv2", "latents", beside=("encoder.snake1",)),
        *(
            Stage(
                name,
                "quantizer",
                (name,),
                {name: ("encodings",)},
                i,
                (f"{name}.codebook.weight", "directions"),
            )
            for i, name in _numbered("quantizer.quantizers", config.n_codebooks)
        ),
    ]


def dac_decode_stages(config: DacConfig) -> list[Stage]:
    """From codes to audio."""
    return [
        stage("dequantizer", "quantizer", "hidden"),
        stage("decoder_input", "decoder.conv1", "hidden"),
        *stages("decoder_block", "decoder.block", len(config.upsampling_ratios), "hidden"),
        stage("decoder_output", "decoder.conv2", "audio", beside=("decoder.snake1",)),
    ]


def encodec_encode_stages(config: EncodecConfig) -> list[Stage]:
    """From samples, (B, 1, L) in `hidden`, to codes. A quantizer searches in the latents themselves."""
    *inner, last = _filled(config, "encoder")
    return [
        *(stage("encoder_layer", f"encoder.layers.{i}", "hidden", index=i) for i in inner),
        stage("encoder_output", f"encoder.layers.{last}", "latents", index=last),
        *(
            Stage(name, "quantizer", (name,), {}, i, (f"{name}.codebook.embed", "points"))
            for i, name in _numbered("quantizer.layers", config.n_codebooks)
        ),
    ]


def encodec_decode_stages(config: EncodecConfig) -> list[Stage]:
    """From codes to audio."""
    first, *inner, last = _filled(config, "decoder")
    return [
        stage("dequantizer", "quantizer", "latents"),
        stage("decoder_input", f"decoder.layers.{first}", "hidden", index=first),
        *(stage("decoder_layer", f"decoder.layers.{i}", "hidden", index=i) for i in inner),
        stage("decoder_output", f"decoder.layers.{last}", "audio", index=last),
    ]


def vocos_stages(config: VocosConfig) -> list[Stage]:
    """From codes to audio."""
    return [
        stage("features", "feature_extractor", "rows"),
        stage("embedding", "backbone.embed", "rows", beside=("backbone.norm",)),
        *stages("block", "backbone.convnext", config.num_layers, "rows"),
        stage("norm", "backbone.final_layer_norm", "rows"),
        stage("head", "head.out", "audio"),
    ]


def mbd_stages(config: MbdConfig, band: int) -> list[Stage]:
    """One band: its processor on a sound, then one estimate of the noise in `hidden`."""
    at, depth = f"bands.{band}.unet", len(config.bands[band].unet.channels)
    tables = [f"{at}.embedding", *(f"{at}.embeddings.{i}" for i in range(depth - 1))]
    found = [
        stage("down", f"{at}.encoders.{i}", "hidden", beside=(table,), index=i)
        for i, table in enumerate(tables)
    ]
    found.append(stage("condition", f"{at}.conv_codec", f"skip{depth - 1}"))
    found += stages("up", f"{at}.decoders", depth - 1, "hidden")
    found.append(stage("estimate", f"{at}.decoders.{depth - 1}", "estimate", index=depth - 1))
    if config.bands[band].processor is not None:
        found.insert(0, stage("processor", f"bands.{band}.processor", "processed"))
    return found


def _numbered(module: str, count: int) -> list[tuple[int, str]]:
    return [(i, f"{module}.{i}") for i in range(count)]


def _filled(config: EncodecConfig, half: str) -> list[int]:
    """Which layers of the encoder or decoder hold weights: between them stand activations."""
    names = [name.split(".") for name in encodec.parameter_shapes(config)]
    return list(dict.fromkeys(int(name[2]) for name in names if name[:2] == [half, "layers"]))
