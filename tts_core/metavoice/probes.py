"""The runs of MetaVoice's networks that `mlx-port verify` watches, and their inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tts_core.audio.speaker_slices import SAMPLE_RATE, utterance_slices
from tts_core.codecs.probes import encodec_probes, mbd_probes, vocos_probe
from tts_core.config import config_of
from tts_core.metavoice.config import (
    CODEBOOK_SIZE,
    FIRST_STAGE_BOOKS,
    FirstStageConfig,
    SecondStageConfig,
    SpeakerEncoderConfig,
)
from tts_core.metavoice.inputs import interleave, second_stage_rows
from tts_core.metavoice.request import BANDWIDTH_ID
from tts_core.metavoice.text import read_tokenizers
from tts_core.nn.probe import TEXT, Framework, InputSources, Probe, passes, sound

SPEAKER_SECONDS = 2.5  # two slices
EMBEDDINGS = r"speaker_cond_pos|transformer\.wtes\.\d+"


def probes(sources: InputSources) -> list[Probe]:
    """List the runs: codecs, speaker encoder, both stages, and diffusion bands if present."""
    return [
        *encodec_probes(sources),
        vocos_probe(sources, BANDWIDTH_ID),
        _speaker(sources),
        _first_stage(sources),
        _second_stage(sources),
        *(mbd_probes(sources) if "mbd" in sources.configs else ()),
    ]


def _speaker(sources: InputSources) -> Probe:
    config = config_of(sources.configs, "metavoice_speaker_encoder", SpeakerEncoderConfig)
    samples = sound(SAMPLE_RATE, round(SPEAKER_SECONDS * SAMPLE_RATE), sources.seed)
    slices = utterance_slices(samples, config.n_mels)

    def run(network: Any, framework: Framework) -> Mapping[str, Any]:
        return {"vectors": network(framework.array(slices))}

    given = {"slices": slices}
    return Probe("speaker_encoder", "metavoice_speaker_encoder", given, run, r"lstm|linear")


def _first_stage(sources: InputSources) -> Probe:
    """Text and interleaved codes, in several calls, with a voice and, for guidance, without."""
    config, rows = config_of(sources.configs, "metavoice", FirstStageConfig), sources.rows
    sources.check_rows(config.max_position_embeddings)
    text = read_tokenizers(sources.documents).first_stage.encode(TEXT)
    text = text[-max(1, rows // 2) :]  # includes the end of text
    ids = interleave(text, sources.codes(FIRST_STAGE_BOOKS, CODEBOOK_SIZE, rows))[:rows] % config.vocab_size
    voice = _voice(sources, config.speaker_embedding_size)
    tokens, voices = np.stack((ids, ids)).astype(np.int32), np.stack((voice, np.zeros_like(voice)))

    def run(network: Any, framework: Framework) -> Mapping[str, Any]:
        speakers, cache = network.speakers(framework.array(voices)), network.new_cache(rows)
        pieces = [framework.array(tokens[:, start:stop]) for start, stop in passes(rows)]
        return {"logits": [network(piece, speakers, cache) for piece in pieces]}

    given, targets = {"tokens": tokens, "embeddings": voices}, np.append(ids[1:], -1)
    watched = rf"{EMBEDDINGS}|transformer\.(h\.\d+|ln_f)"
    return Probe("metavoice", "metavoice", given, run, watched, targets=targets)


def _second_stage(sources: InputSources) -> Probe:
    """The whole window once."""
    config = config_of(sources.configs, "metavoice_second_stage", SecondStageConfig)
    text = read_tokenizers(sources.documents).second_stage.encode(TEXT)
    codes = sources.codes(FIRST_STAGE_BOOKS, CODEBOOK_SIZE, sources.rows)
    tokens = second_stage_rows(text, codes, config.max_position_embeddings)[None]
    voice = _voice(sources, config.speaker_embedding_size)[None]

    def run(network: Any, framework: Framework) -> Mapping[str, Any]:
        return {"logits": network(framework.array(tokens), framework.array(voice))}

    watched = rf"{EMBEDDINGS}|transformer\.(h\.\d+|ln_f)|lm_heads\.\d+"
    given = {"tokens": tokens, "embeddings": voice}
    return Probe("second_stage", "metavoice_second_stage", given, run, watched)


def _voice(sources: InputSources, width: int) -> np.ndarray:
    """Draw a vector like the speaker encoder's: no number is negative, the length is 1."""
    drawn = np.abs(sources.random().standard_normal(width))
    return (drawn / np.linalg.norm(drawn)).astype(np.float32)
