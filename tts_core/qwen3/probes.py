"""Whole runs of Qwen3-TTS and its codec, to compare another port with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tts_core.codecs.qwen3_codec import Qwen3CodecConfig
from tts_core.config import config_of
from tts_core.nn.ladder import TEXT, InputSources, signal, sound
from tts_core.nn.layers import Framework
from tts_core.nn.probe import Probe
from tts_core.qwen3 import speaker
from tts_core.qwen3.config import Qwen3Config
from tts_core.qwen3.layout import NOTHING, build, instruction, language_id, script
from tts_core.qwen3.tokenizer import FILES, shared_tokenizer

STYLE = "Speak slowly."
BEYOND = 8  # frames more than the codec's decoder attends to


def probes(sources: InputSources) -> list[Probe]:
    """List the runs: talker, predictor, speaker encoder if any, and both directions of the codec."""
    config = config_of(sources.configs, "qwen3", Qwen3Config)
    codec = config_of(sources.configs, "qwen3_codec", Qwen3CodecConfig)
    sources.check_rows(config.max_positions)
    rng = np.random.default_rng(sources.seed)
    codes = rng.integers(0, config.codebook_size, (1, config.n_codebooks, sources.rows), dtype=np.int32)
    found = [_talker(sources, config, codes), _predictor(config, codes[0].T, rng)]
    if config.speaker_encoder is not None:
        found.append(_speaker(sources, config.speaker_encoder))
    return [*found, _encoder(sources, codec), _decoder(sources, codec, rng)]


def _talker(sources: InputSources, config: Qwen3Config, codes: np.ndarray) -> Probe:
    """The prompt of a text that is read whole, then given frames, one at a time."""
    documents = sources.documents["qwen3"]
    tokenizer = shared_tokenizer(*(documents[name] for name in FILES), config.text_vocab_size)
    voice = config.speakers[0] if config.speakers else None
    language = next((name for name, _ in config.languages if "dialect" not in name), "auto")
    style = STYLE if config.mode == "voice_design" else None
    layout = build(
        config,
        tokenizer.encode(script(TEXT)),
        language=language_id(config, language, voice),
        voice=voice.id if voice else NOTHING,
        instruction=tokenizer.encode(instruction(style)) if style else (),
        streamed=False,
    )
    sources.check_rows(config.max_positions - len(layout.text))

    def run(network: Any, framework: Framework) -> Mapping[str, Any]:
        talker, cache = network.talker, network.talker.new_cache()
        prompt = talker.embed_layout(layout, None, None)
        padding = talker.embed_text(framework.array(np.array([config.tts_pad_id], np.int32)))
        hidden = [talker(prompt, 0, cache)]
        for frame in range(codes.shape[2]):
            read = talker.embed_frames(framework.array(codes[:, :, frame : frame + 1])) + padding
            hidden.append(talker(read, prompt.shape[1] + frame, cache))
        return {"prompt": prompt, "hidden": hidden, "logits": [talker.logits(rows) for rows in hidden]}

    given = {
        "text": TEXT,
        "voice": voice.name if voice else None,
        "language": language,
        "instruct": style,
        "codes": codes,
    }
    return Probe("talker", "qwen3", given, run)


def _predictor(config: Qwen3Config, codes: np.ndarray, rng: np.random.Generator) -> Probe:
    """All stages of independent frames. codes: (F, Q)."""
    hidden = rng.standard_normal((len(codes), 1, config.talker.hidden_size)).astype(np.float32)

    def run(network: Any, framework: Framework) -> Mapping[str, Any]:
        talker, predictor = network.talker, network.talker.code_predictor
        cache, ids = predictor.new_cache(), framework.array(codes)
        first = talker.model.codec_embedding(ids[:, :1])
        x, logits = framework.ops.concatenate([_like(framework, hidden, first), first], 1), []
        for stage in range(predictor.stages):
            logits.append(predictor(stage, x, cache))
            x = predictor.embed(stage, ids[:, stage + 1 : stage + 2])
        return {"logits": logits}

    return Probe("predictor", "qwen3", {"hidden": hidden, "codes": codes}, run)


def _speaker(sources: InputSources, config: speaker.SpeakerConfig) -> Probe:
    samples = max(round(sources.seconds * config.sample_rate), config.least_samples)
    mel = speaker.mel(sound(config.sample_rate, samples, sources.seed), config)[None]

    def run(network: Any, framework: Framework) -> Mapping[str, Any]:
        encoder = network.speaker_encoder
        return {"vector": encoder(_like(framework, mel, encoder.fc.weight))}

    return Probe("speaker", "qwen3", {"mel": mel}, run)


def _encoder(sources: InputSources, codec: Qwen3CodecConfig) -> Probe:
    samples = signal(codec, sources.seconds, sources.seed)

    def run(network: Any, framework: Framework) -> Mapping[str, Any]:
        encoder, frames = network.encoder, samples.shape[1] // codec.hop_length
        heard = _like(framework, samples, encoder.downsample.conv.weight)
        return {"codes": encoder.encode_in_windows(heard, codec.n_codebooks, frames)}

    return Probe("codec encoder", "qwen3_codec", {"samples": samples}, run)


def _decoder(sources: InputSources, codec: Qwen3CodecConfig, rng: np.random.Generator) -> Probe:
    """Frames beyond the decoder's window; the last two begin with code 0, a sound as any other."""
    frames = codec.decoder.sliding_window + BEYOND
    codes = rng.integers(1, codec.decoder.codebook_size, (1, codec.n_codebooks, frames), dtype=np.int32)
    codes[:, 0, -2:] = 0

    def run(network: Any, framework: Framework) -> Mapping[str, Any]:
        samples, _ = network.decode_piece(codes, None)
        return {"samples": samples, "samples after the port's trim": samples}

    return Probe("codec decoder", "qwen3_codec", {"codes": codes}, run)


def _like(framework: Framework, values: np.ndarray, other: Any) -> Any:
    """Make an array with the type of another."""
    return framework.array(values.astype(np.asarray(other[:1]).dtype))
