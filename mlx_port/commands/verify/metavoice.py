"""MetaVoice's networks: what is run, and on what."""

from __future__ import annotations

import json
from functools import partial

import numpy as np

from mlx_port.commands.verify.codecs import codec_rungs
from mlx_port.commands.verify.inputs import TEXT, Given, sound
from mlx_port.commands.verify.ladder import Rung
from tts_core.codecs.layer_order import mbd_stages
from tts_core.codecs.mbd import MbdConfig
from tts_core.codecs.mbd_schedule import default_steps
from tts_core.metavoice.codes import interleave, second_stage_rows
from tts_core.metavoice.config import CODEBOOK_SIZE, FIRST_STAGE_BOOKS
from tts_core.metavoice.layer_order import first_stage_stages, second_stage_stages, speaker_encoder_stages
from tts_core.metavoice.speaker_slices import SAMPLE_RATE, utterance_slices
from tts_core.metavoice.text import Tokenizers, read_converted
from tts_core.nn.layer_order import State

SPEAKER_SECONDS = 2.5  # two slices


def ladder(given: Given) -> list[Rung]:
    """The codecs, the speaker encoder, both stages on its voice, and the bands of diffusion if there are."""
    first, second = given.configs["metavoice"], given.configs["metavoice_second_stage"]
    speaker, bands = given.configs["metavoice_speaker_encoder"], given.configs.get("mbd")
    given.check_rows(first.max_position_embeddings)
    return [
        *codec_rungs(given),
        Rung(
            "speaker_encoder",
            "metavoice_speaker_encoder",
            "metavoice.layerwise:SpeakerEncoderLayers",
            speaker_encoder_stages(speaker),
            partial(_slices, n_mels=speaker.n_mels),
            keeps=("speaker",),
        ),
        Rung(
            "metavoice",
            "metavoice",
            "metavoice.layerwise:FirstStageLayers",
            first_stage_stages(first),
            _ids,
            targets=lambda state: np.append(state["tokens"][0, 1:], -1),
        ),
        Rung(
            "second_stage",
            "metavoice_second_stage",
            "metavoice.layerwise:SecondStageLayers",
            second_stage_stages(second),
            _window,
        ),
        *(_bands(bands) if bands else ()),
    ]


def _bands(config: MbdConfig) -> list[Rung]:
    layers = "codecs.layerwise:MbdLayers"
    return [
        Rung(f"mbd, band {b}", "mbd", layers, mbd_stages(config, b), partial(_noisy, band=b))
        for b in range(len(config.bands))
    ]


def _slices(given: Given, n_mels: int) -> State:
    samples = sound(SAMPLE_RATE, round(SPEAKER_SECONDS * SAMPLE_RATE), given.seed)
    return {"slices": utterance_slices(samples, n_mels)}


def _ids(given: Given) -> State:
    """Text and interleaved codes, with a voice and, for guidance, without one."""
    config, text = given.configs["metavoice"], _tokenizers(given).first_stage.encode(TEXT)
    text = text[-max(1, given.rows // 2) :]  # its end is there
    codes = given.codes(FIRST_STAGE_BOOKS, CODEBOOK_SIZE, given.rows)
    ids = interleave(text, codes)[: given.rows] % config.vocab_size
    voice = given.made["speaker"].astype(np.float32)
    return {
        "tokens": np.stack((ids, ids)).astype(np.int32),
        "embeddings": np.stack((voice, np.zeros_like(voice))),
    }


def _window(given: Given) -> State:
    config, text = given.configs["metavoice_second_stage"], _tokenizers(given).second_stage.encode(TEXT)
    window = config.max_position_embeddings
    codes = given.codes(FIRST_STAGE_BOOKS, CODEBOOK_SIZE, given.rows)
    return {
        "tokens": second_stage_rows(text, codes, window)[None],
        "embeddings": given.made["speaker"].astype(np.float32)[None],
    }


def _noisy(given: Given, band: int) -> State:
    """The codec's latents and wave, and noise at a step half-way."""
    steps = default_steps(given.configs["mbd"].bands[band].schedule)
    wave = given.made["audio"].astype(np.float32)
    noise = np.random.default_rng(given.seed + band).standard_normal(wave.shape).astype(np.float32)
    return {
        "band": np.array(band, np.int32),
        "step": np.array([steps[len(steps) // 2]], np.int32),
        "sound": wave,
        "hidden": noise[:, None],
        "latents": given.made["latents"].astype(np.float32),
    }


def _tokenizers(given: Given) -> Tokenizers:
    tables = {"first_stage": "metavoice", "second_stage": "metavoice_second_stage"}
    documents = given.documents
    return read_converted(
        {stage: json.loads(documents[kind]["tokenizer.json"]) for stage, kind in tables.items()}
    )
