"""The runs of codecs and vocoders in `mlx-port verify`, for the ladders of models that use them."""

from __future__ import annotations

from functools import partial

import numpy as np

from tts_core.codecs import dac, encodec, mbd, mimi, qwen3_codec, vocos
from tts_core.codecs.dac import DacConfig
from tts_core.codecs.dac_layers import DacLayers
from tts_core.codecs.encodec import EncodecConfig
from tts_core.codecs.encodec_layers import EncodecLayers
from tts_core.codecs.mbd import MbdConfig
from tts_core.codecs.mbd_layers import MbdLayers
from tts_core.codecs.mbd_schedule import default_steps
from tts_core.codecs.mimi import MimiConfig
from tts_core.codecs.mimi_layers import MimiLayers
from tts_core.codecs.qwen3_codec import Qwen3CodecConfig
from tts_core.codecs.qwen3_layers import Qwen3CodecLayers
from tts_core.codecs.vocos import VocosConfig
from tts_core.codecs.vocos_layers import VocosLayers
from tts_core.config import config_of
from tts_core.nn.ladder import FrameSizes, InputSources, Rung, no_codes, signal
from tts_core.nn.layer_order import State


def dac_rungs(given: InputSources) -> list[Rung]:
    """List the runs of DAC: encoder and decoder with all codebooks."""
    codec = config_of(given.configs, "dac", DacConfig)
    return [
        Rung("codec", DacLayers, dac.encode_stages(codec), partial(_sound, codec=codec), keeps=("codes",)),
        Rung("codec", DacLayers, dac.decode_stages(codec), _codes),
    ]


def encodec_rungs(given: InputSources) -> list[Rung]:
    """List the runs of EnCodec: encoder and decoder with all codebooks."""
    codec = config_of(given.configs, "encodec", EncodecConfig)
    heard = partial(_channel, codec=codec)
    return [
        Rung("codec", EncodecLayers, encodec.encode_stages(codec), heard, keeps=("codes",)),
        Rung("codec", EncodecLayers, encodec.decode_stages(codec), _codes, keeps=("latents", "audio")),
    ]


def mimi_rungs(given: InputSources) -> list[Rung]:
    """List the runs of Mimi: encoder and decoder with all codebooks."""
    codec = config_of(given.configs, "mimi", MimiConfig)
    return [
        Rung(
            "codec", MimiLayers, mimi.encode_stages(codec), partial(_channel, codec=codec), keeps=("codes",)
        ),
        Rung("codec", MimiLayers, mimi.decode_stages(codec), _codes),
    ]


def qwen3_codec_rungs(given: InputSources) -> list[Rung]:
    """List the runs of Qwen3-TTS's codec: encoder and decoder with all codebooks."""
    codec = config_of(given.configs, "qwen3_codec", Qwen3CodecConfig)
    heard = partial(_channel, codec=codec)
    return [
        Rung("codec", Qwen3CodecLayers, qwen3_codec.encode_stages(codec), heard, keeps=("codes",)),
        Rung("codec", Qwen3CodecLayers, qwen3_codec.decode_stages(codec), _codes),
    ]


def vocos_rung(given: InputSources, bandwidth_id: int) -> Rung:
    """Build the run of Vocos with all its codebooks. bandwidth_id: row of its norms that the model uses."""
    config = config_of(given.configs, "vocos", VocosConfig)
    vocos.check_request(config, config.n_codebooks, bandwidth_id)
    return Rung(
        "vocoder",
        VocosLayers,
        vocos.decode_stages(config),
        partial(_vocos_codes, bandwidth_id=bandwidth_id),
    )


def mbd_rungs(given: InputSources) -> list[Rung]:
    """List the runs of the bands of multi-band diffusion, on EnCodec's latents and audio."""
    config = config_of(given.configs, "mbd", MbdConfig)
    return [
        Rung(f"mbd, band {b}", MbdLayers, mbd.band_stages(config, b), partial(_noisy, band=b))
        for b in range(len(config.bands))
    ]


def _channel(given: InputSources, codec: FrameSizes) -> State:
    made = _sound(given, codec)
    return {"hidden": made["samples"][:, None], "codes": made["codes"]}


def _sound(given: InputSources, codec: FrameSizes) -> State:
    samples = signal(codec, given.seconds, given.seed)
    return {"samples": samples, "codes": no_codes(samples, codec.hop_length)}


def _codes(given: InputSources) -> State:
    return {"codes": given.made["codes"]}


def _vocos_codes(given: InputSources, bandwidth_id: int) -> State:
    codes = given.made["codes"][:, : config_of(given.configs, "vocos", VocosConfig).n_codebooks]
    return {"codes": codes, "bandwidth": np.array(bandwidth_id, np.int32)}


def _noisy(given: InputSources, band: int) -> State:
    """Build a band's inputs: the codec's latents and waveform, and noise at the middle step."""
    steps = default_steps(config_of(given.configs, "mbd", MbdConfig).bands[band].schedule)
    wave = given.made["audio"].astype(np.float32)
    noise = np.random.default_rng(given.seed + band).standard_normal(wave.shape).astype(np.float32)
    return {
        "band": np.array(band, np.int32),
        "step": np.array([steps[len(steps) // 2]], np.int32),
        "sound": wave,
        "hidden": noise[:, None],
        "latents": given.made["latents"].astype(np.float32),
    }
