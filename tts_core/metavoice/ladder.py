"""The runs of MetaVoice's networks that `mlx-port verify` compares, and their inputs."""

from __future__ import annotations

from functools import partial

import numpy as np

from tts_core.audio.speaker_slices import SAMPLE_RATE, utterance_slices
from tts_core.codecs.ladder import encodec_rungs, mbd_rungs, vocos_rung
from tts_core.config import config_of
from tts_core.metavoice.codes import interleave, second_stage_rows
from tts_core.metavoice.config import (
    CODEBOOK_SIZE,
    FIRST_STAGE_BOOKS,
    FirstStageConfig,
    SecondStageConfig,
    SpeakerEncoderConfig,
)
from tts_core.metavoice.layer_order import first_stage_stages, second_stage_stages, speaker_encoder_stages
from tts_core.metavoice.layers import FirstStageLayers, SecondStageLayers, SpeakerEncoderLayers
from tts_core.metavoice.request import BANDWIDTH_ID
from tts_core.metavoice.text import Tokenizers, read_tokenizers
from tts_core.nn.ladder import TEXT, InputSources, Rung, sound
from tts_core.nn.layer_order import State

SPEAKER_SECONDS = 2.5  # two slices


def ladder(given: InputSources) -> list[Rung]:
    """List the runs: codecs, speaker encoder, both stages with its voice, and diffusion bands if present."""
    first = config_of(given.configs, "metavoice", FirstStageConfig)
    second = config_of(given.configs, "metavoice_second_stage", SecondStageConfig)
    speaker = config_of(given.configs, "metavoice_speaker_encoder", SpeakerEncoderConfig)
    given.check_rows(first.max_position_embeddings)
    return [
        *encodec_rungs(given),
        vocos_rung(given, BANDWIDTH_ID),
        Rung(
            "speaker_encoder",
            SpeakerEncoderLayers,
            speaker_encoder_stages(speaker),
            partial(_slices, n_mels=speaker.n_mels),
            keeps=("speaker",),
        ),
        Rung(
            "metavoice",
            FirstStageLayers,
            first_stage_stages(first),
            _ids,
            targets=lambda state: np.append(state["tokens"][0, 1:], -1),
        ),
        Rung(
            "second_stage",
            SecondStageLayers,
            second_stage_stages(second),
            _window,
        ),
        *(mbd_rungs(given) if "mbd" in given.configs else ()),
    ]


def _slices(given: InputSources, n_mels: int) -> State:
    samples = sound(SAMPLE_RATE, round(SPEAKER_SECONDS * SAMPLE_RATE), given.seed)
    return {"slices": utterance_slices(samples, n_mels)}


def _ids(given: InputSources) -> State:
    """Build the first stage's inputs: text and interleaved codes, with a voice and, for guidance, without."""
    config = config_of(given.configs, "metavoice", FirstStageConfig)
    text = _tokenizers(given).first_stage.encode(TEXT)
    text = text[-max(1, given.rows // 2) :]  # includes the end of text
    codes = given.codes(FIRST_STAGE_BOOKS, CODEBOOK_SIZE, given.rows)
    ids = interleave(text, codes)[: given.rows] % config.vocab_size
    voice = given.made["speaker"].astype(np.float32)
    return {
        "tokens": np.stack((ids, ids)).astype(np.int32),
        "embeddings": np.stack((voice, np.zeros_like(voice))),
    }


def _window(given: InputSources) -> State:
    config = config_of(given.configs, "metavoice_second_stage", SecondStageConfig)
    text = _tokenizers(given).second_stage.encode(TEXT)
    window = config.max_position_embeddings
    codes = given.codes(FIRST_STAGE_BOOKS, CODEBOOK_SIZE, given.rows)
    return {
        "tokens": second_stage_rows(text, codes, window)[None],
        "embeddings": given.made["speaker"].astype(np.float32)[None],
    }


def _tokenizers(given: InputSources) -> Tokenizers:
    return read_tokenizers(given.documents)
