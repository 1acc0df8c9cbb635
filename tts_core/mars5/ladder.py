"""The runs of MARS5's networks that `mlx-port verify` compares, and their inputs."""

from __future__ import annotations

import numpy as np

from tts_core.codecs.ladder import encodec_rungs, vocos_rung
from tts_core.config import config_of
from tts_core.mars5.config import CodecLMConfig, ResidualTransformerConfig
from tts_core.mars5.layer_order import codec_lm_stages, residual_transformer_stages
from tts_core.mars5.layers import CodecLMLayers, ResidualTransformerLayers
from tts_core.mars5.request import BANDWIDTH_ID
from tts_core.mars5.tokens import SPEECH_FILE, TEXT_FILE, CodecVocabulary
from tts_core.nn.ladder import TEXT, InputSources, Rung
from tts_core.nn.layer_order import State

REFERENCE_FRAMES = 24
TIMESTEP = 100  # half of the diffusion's


def ladder(given: InputSources) -> list[Rung]:
    """List the runs: the codecs, the AR on ids of text and speech, the NAR on the codec's codes."""
    ar = config_of(given.configs, "mars5", CodecLMConfig)
    nar = config_of(given.configs, "mars5_nar", ResidualTransformerConfig)
    return [
        *encodec_rungs(given),
        vocos_rung(given, BANDWIDTH_ID),
        Rung(
            "mars5",
            CodecLMLayers,
            codec_lm_stages(ar),
            _ids,
            targets=lambda state: np.append(state["ids"][0], -1),
        ),
        Rung(
            "nar",
            ResidualTransformerLayers,
            residual_transformer_stages(nar),
            _noisy,
            targets=lambda state: state["codes"][0, :, : nar.n_output_codebooks],
        ),
    ]


def _ids(given: InputSources) -> State:
    """Build the AR's inputs: a reference, and ids after its vector, half text, half speech."""
    config, vocabulary = config_of(given.configs, "mars5", CodecLMConfig), _vocabulary(given)
    text = vocabulary.shallow(TEXT).tokens
    codes = given.codes(config.n_codebooks, config.codebook_rows - 1, max(REFERENCE_FRAMES, given.rows))
    speech = vocabulary.first_speech + np.array(vocabulary.speech.encode(codes[0].tolist()), np.int32)
    count = max(1, given.rows // 2)
    ids = np.concatenate((text[:count], np.resize(speech, max(0, given.rows - 1 - len(text[:count])))))
    return {"reference": codes.T[None, :REFERENCE_FRAMES], "ids": ids[None].astype(np.int32)}


def _noisy(given: InputSources) -> State:
    """Build the NAR's inputs: a reference, a text, and codes of which half are noise."""
    config = config_of(given.configs, "mars5_nar", ResidualTransformerConfig)
    classes = min(config.n_classes, config.codebook_rows)
    codes = given.codes(config.n_codebooks, classes, max(REFERENCE_FRAMES, given.rows))
    random = np.random.default_rng(given.seed)
    noisy = np.where(random.random(codes.shape) < 0.5, random.integers(0, classes, codes.shape), codes)
    return {
        "reference": codes.T[None, :REFERENCE_FRAMES],
        "ids": _vocabulary(given).shallow(TEXT).tokens[None],
        "codes": noisy.T[None, : given.rows].astype(np.int32),
        "timestep": np.array([TIMESTEP], np.int32),
    }


def _vocabulary(given: InputSources) -> CodecVocabulary:
    texts, ids = given.documents["mars5"], config_of(given.configs, "mars5", CodecLMConfig).vocab_size
    return CodecVocabulary.read(texts[TEXT_FILE], texts[SPEECH_FILE], vocab_size=ids)
