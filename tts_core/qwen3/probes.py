"""The runs of Qwen3-TTS and its codec that `mlx-port verify` watches, and their inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tts_core.codecs.probes import qwen3_codec_probes
from tts_core.config import config_of
from tts_core.nn.probe import TEXT, Framework, InputSources, Probe, single_passes, sound
from tts_core.qwen3 import speaker
from tts_core.qwen3.config import Qwen3Config
from tts_core.qwen3.layout import NO_ID, build, instruction, language_id, script
from tts_core.qwen3.tokenizer import FILES, shared_tokenizer

STYLE = "Speak slowly."
LAYER = r"layers\.\d+"
GROUPS = {
    "norm.weight": "norms",
    "speaker_encoder.": "speaker encoder",
    "_embedding.": "embeddings",
    "text_projection.": "text projection",
    "small_to_mtp_projection.": "predictor projection",
    "_head.": "heads",
    "code_predictor.": "predictor layers",
    ".self_attn.": "attention",
    ".mlp.": "mlp",
}
MOST_FRAMES = 16  # of the predictor, whose frames do not depend on each other


def probes(sources: InputSources) -> list[Probe]:
    """List the runs: the codec in both directions, talker, predictor, and speaker encoder if any."""
    config = config_of(sources.configs, "qwen3", Qwen3Config)
    sources.check_rows(config.max_positions)
    codes = sources.codes(config.n_codebooks, config.codebook_size, sources.rows)[None]
    found = [*qwen3_codec_probes(sources), _talker(sources, config, codes)]
    found.append(_predictor(config, codes[0, :, :MOST_FRAMES].T, sources.random()))
    if config.speaker_encoder is not None:
        found.append(_speaker(sources, config.speaker_encoder))
    return found


def _talker(sources: InputSources, config: Qwen3Config, codes: np.ndarray) -> Probe:
    """The prompt of a text that is read whole, and given frames, the last two one at a time."""
    documents = sources.documents["qwen3"]
    tokenizer = shared_tokenizer(*(documents[name] for name in FILES), config.text_vocab_size)
    voice = config.speakers[0] if config.speakers else None
    language = next((name for name, _ in config.languages if "dialect" not in name), "auto")
    style = STYLE if config.mode == "voice_design" else None
    layout = build(
        config,
        tokenizer.encode(script(TEXT)),
        language=language_id(config, language, voice),
        voice=voice.id if voice else NO_ID,
        instruction=tokenizer.encode(instruction(style)) if style else (),
        streamed=False,
    )
    sources.check_rows(config.max_positions - len(layout.text))

    def run(network: Any, framework: Framework) -> Mapping[str, Any]:
        talker, cache, start, hidden = network.talker, network.talker.new_cache(), 0, []
        prompt = talker.embed_layout(layout, None, None)
        padding = talker.embed_text(framework.array(np.array([config.tts_pad_id], np.int32)))
        for first, last in single_passes(codes.shape[2]):
            read = talker.embed_frames(framework.array(codes[:, :, first:last])) + padding
            read = read if first else framework.concatenate([prompt, read], 1)
            hidden.append(talker(read, start, cache))
            start += read.shape[1]
        return {"prompt": prompt, "hidden": hidden, "logits": [talker.logits(rows) for rows in hidden]}

    given = {
        "text": TEXT,
        "voice": voice.name if voice else None,
        "language": language,
        "instruct": style,
        "codes": codes,
        "passes": single_passes(codes.shape[2]),
    }
    embeddings = r"model\.(text_embedding|codec_embedding)|text_projection"
    watched = rf"talker\.({embeddings}|model\.({LAYER}|norm)|codec_head)"
    return Probe("talker", "qwen3", given, run, watched, groups=GROUPS)


def _predictor(config: Qwen3Config, codes: np.ndarray, rng: np.random.Generator) -> Probe:
    """All stages of independent frames. codes: (F, Q)."""
    hidden = rng.standard_normal((len(codes), 1, config.talker.hidden_size)).astype(np.float32)

    def run(network: Any, framework: Framework) -> Mapping[str, Any]:
        talker, predictor = network.talker, network.talker.code_predictor
        cache, ids = predictor.new_cache(), framework.array(codes)
        first = talker.model.codec_embedding(ids[:, :1])
        x, logits = framework.concatenate([framework.array(hidden), first], 1), []
        for stage in range(predictor.stages):
            logits.append(predictor(stage, x, cache))
            x = predictor.embed(stage, ids[:, stage + 1 : stage + 2])
        return {"logits": logits}

    inner = rf"model\.(codec_embedding\.\d+|{LAYER}|norm)"
    watched = rf"talker\.code_predictor\.(small_to_mtp_projection|{inner}|lm_head\.\d+)"
    given = {"hidden": hidden, "codes": codes}
    return Probe("predictor", "qwen3", given, run, watched, groups=GROUPS)


def _speaker(sources: InputSources, config: speaker.SpeakerConfig) -> Probe:
    samples = max(round(sources.seconds * config.sample_rate), config.least_samples)
    mel = speaker.mel(sound(config.sample_rate, samples, sources.seed), config)[None]

    def run(network: Any, framework: Framework) -> Mapping[str, Any]:
        encoder = network.speaker_encoder
        return {"vector": encoder(framework.array(mel, encoder.fc.weight))}

    watched = r"speaker_encoder\.(blocks\.\d+|mfa|asp|fc)"
    return Probe("speaker", "qwen3", {"mel": mel}, run, watched, watched, groups=GROUPS)
