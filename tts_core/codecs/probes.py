"""The runs of codecs and vocoders in `mlx-port verify`, for the probes of models that use them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tts_core.codecs import vocos
from tts_core.codecs.dac import DacConfig
from tts_core.codecs.encodec import EncodecConfig
from tts_core.codecs.mbd import MbdConfig
from tts_core.codecs.mbd_schedule import default_steps
from tts_core.codecs.mimi import MimiConfig
from tts_core.codecs.qwen3_codec import Qwen3CodecConfig
from tts_core.codecs.vocos import VocosConfig
from tts_core.config import config_of
from tts_core.nn.probe import Framework, InputSources, Probe, signal

POINTS, DIRECTIONS = ("codebook.embed", "points"), ("codebook.weight", "directions")
STACK = r"\.(layers\.\d+)"
BEYOND = 8  # frames more than the decoder of Qwen3-TTS's codec attends to


def dac_probes(sources: InputSources) -> list[Probe]:
    """List the runs of DAC: encoder and decoder with all codebooks."""
    config = config_of(sources.configs, "dac", DacConfig)
    layers = r"(conv[12]|block\.\d+)"
    encoder = rf"encoder\.{layers}|quantizer\.quantizers\.\d+\.(in_proj|out_proj)"
    decoder = rf"decoder\.{layers}"
    samples, codes = signal(config, sources.seconds, sources.seed), _codes(sources, config)
    return [
        _encoder("dac", rf"{encoder}|quantizer\.quantizers\.\d+\.encode", encoder, samples, DIRECTIONS, _all),
        _decoder("dac", rf"{decoder}|quantizer\.decode", codes, _unwindowed),
    ]


def encodec_probes(sources: InputSources) -> list[Probe]:
    """List the runs of EnCodec: encoder and decoder with all codebooks."""
    config = config_of(sources.configs, "encodec", EncodecConfig)
    samples, codes = signal(config, sources.seconds, sources.seed), _codes(sources, config)
    encoder = rf"encoder{STACK}"
    rows = rf"{encoder}|quantizer\.layers\.\d+\.(en|de)code"
    return [
        _encoder("encodec", rows, encoder, samples, POINTS, _every(config)),
        _decoder("encodec", rf"decoder{STACK}|quantizer\.decode", codes, _whole),
    ]


def mimi_probes(sources: InputSources) -> list[Probe]:
    """List the runs of Mimi: encoder and decoder with all codebooks."""
    config = config_of(sources.configs, "mimi", MimiConfig)
    samples, codes = signal(config, sources.seconds, sources.seed), _codes(sources, config)
    rows = rf"(upsample|decoder(_transformer)?{STACK})|quantizer\.(\w+\.)?decode"
    return [
        _mimi_encoder("mimi", "", samples, config, lambda network: network),
        _decoder("mimi", rows, codes, _whole, r"(?!decoder_transformer).*"),
    ]


def qwen3_codec_probes(sources: InputSources) -> list[Probe]:
    """List the runs of Qwen3-TTS's codec; its decoder reads beyond its window, two frames with 0."""
    config = config_of(sources.configs, "qwen3_codec", Qwen3CodecConfig)
    samples = signal(config, sources.seconds, sources.seed)
    frames = config.decoder.sliding_window + BEYOND
    codes = sources.codes(config.n_codebooks, config.decoder.codebook_size, frames)[None]
    codes[:, 0] = np.maximum(codes[:, 0], 1)
    codes[:, 0, -2:] = 0
    at = r"decoder\.pre_transformer"
    layers = r"decoder\.(pre_conv|upsample\.\d+\.\d+|decoder\.\d+)"
    rows = rf"{layers}|{at}\.(input_proj|layers\.\d+|norm|output_proj)|decoder\.quantizer\.(\w+\.)?decode"

    def decode(network: Any, ids: Any) -> Any:
        return network.decode_window(ids, None)[0]

    return [
        _mimi_encoder("qwen3_codec", r"encoder\.", samples, config, lambda network: network.encoder),
        _decoder("qwen3_codec", rows, codes, decode, rf"(?!{at}\.).*"),
    ]


def vocos_probe(sources: InputSources, bandwidth_id: int) -> Probe:
    """Build the run of Vocos with all its codebooks. bandwidth_id: row of its norms that the model uses."""
    config = config_of(sources.configs, "vocos", VocosConfig)
    vocos.check_request(config, config.n_codebooks, bandwidth_id)
    codes = _codes(sources, config)

    def run(network: Any, framework: Framework) -> Mapping[str, Any]:
        return {"samples": network.decode(framework.array(codes), bandwidth_id)}

    rows = r"feature_extractor|backbone\.(embed|norm|convnext\.\d+|final_layer_norm)|head\.out"
    given = {"codes": codes, "bandwidth_id": bandwidth_id}
    return Probe("vocoder", "vocos", given, run, rows, r"backbone\.embed")


def mbd_probes(sources: InputSources) -> list[Probe]:
    """List the runs of the bands of multi-band diffusion: the processor on a sound, one estimate halfway."""
    config = config_of(sources.configs, "mbd", MbdConfig)
    codec = config_of(sources.configs, "encodec", EncodecConfig)
    wave, random = signal(codec, sources.seconds, sources.seed), sources.random()
    frames = wave.shape[1] // codec.hop_length
    latents = random.standard_normal((1, frames, config.codec_dim)).astype(np.float32)

    def probe(band: int) -> Probe:
        noise = random.standard_normal((*wave.shape, 1)).astype(np.float32)
        steps = default_steps(config.bands[band].schedule)
        step = steps[len(steps) // 2]

        def run(network: Any, framework: Framework) -> Mapping[str, Any]:
            network_of_band = network.bands[band]
            x, condition = (framework.transposed(framework.array(source)) for source in (noise, latents))
            estimate = network_of_band.unet(x, step, condition)
            processed = network_of_band.process(framework.array(wave))
            return {"processed": processed, "estimate": framework.transposed(estimate)[..., 0]}

        at = rf"bands\.{band}\.(unet\.((en|de)coders\.\d+|conv_codec))"
        given = {"noise": noise, "latents": latents, "wave": wave, "step": step}
        return Probe(
            f"mbd, band {band}",
            "mbd",
            given,
            run,
            rf"{at}|bands\.{band}\.processor",
            at,
            network="codecs.mbd:Bands",
        )

    return [probe(band) for band in range(len(config.bands))]


def _mimi_encoder(kind: str, at: str, samples: np.ndarray, config: Any, half: Callable[[Any], Any]) -> Probe:
    """The encoder that Mimi and Qwen3-TTS's codec share, without windows. at, half: where it is."""
    frames = samples.shape[1] // config.hop_length

    def encode(network: Any, samples: Any) -> Any:
        return half(network).encode_in_windows(samples, config.n_codebooks, frames)

    transposed = rf"{at}(encoder{STACK}|downsample|quantizer\.\w+\.input_proj)"
    rows = rf"{transposed}|{at}(encoder_transformer{STACK}|quantizer\.\w+\.layers\.\d+\.(en|de)code)"
    return _encoder(kind, rows, transposed, samples, POINTS, encode)


def _encoder(
    kind: str,
    rows: str,
    transposed: str,
    samples: np.ndarray,
    entries: Any,
    encode: Callable[[Any, Any], Any],
) -> Probe:
    def run(network: Any, framework: Framework) -> Mapping[str, Any]:
        return {"codes": encode(network, framework.array(samples))}

    return Probe("codec", kind, {"samples": samples}, run, rows, transposed, half="encoder", entries=entries)


def _decoder(
    kind: str, rows: str, codes: np.ndarray, decode: Callable[[Any, Any], Any], transposed: str = ".*"
) -> Probe:
    def run(network: Any, framework: Framework) -> Mapping[str, Any]:
        return {"samples": decode(network, framework.array(codes))}

    return Probe("codec", kind, {"codes": codes}, run, rows, transposed, half="decoder")


def _codes(sources: InputSources, config: Any) -> np.ndarray:
    frames = max(2, round(sources.seconds * config.frame_rate))
    return sources.codes(config.n_codebooks, config.codebook_size, frames)[None]


def _all(network: Any, samples: Any) -> Any:
    return network.encode(samples)


def _whole(network: Any, codes: Any) -> Any:
    return network.decode(codes)


def _unwindowed(network: Any, codes: Any) -> Any:
    return network.decode_whole(codes)


def _every(config: Any) -> Callable[[Any, Any], Any]:
    return lambda network, samples: network.encode(samples, config.n_codebooks)
