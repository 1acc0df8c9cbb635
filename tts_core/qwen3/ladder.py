"""The runs of Qwen3-TTS and its codec that `mlx-port verify` compares, and their inputs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tts_core.codecs.ladder import qwen3_codec_rungs
from tts_core.config import config_of
from tts_core.nn.ladder import TEXT, InputSources, Rung, sound
from tts_core.nn.layer_order import Stage, State
from tts_core.qwen3 import speaker
from tts_core.qwen3.config import Qwen3Config
from tts_core.qwen3.layer_order import predictor_stages, speaker_stages, talker_stages
from tts_core.qwen3.layers import Qwen3Layers
from tts_core.qwen3.layout import script
from tts_core.qwen3.tokenizer import FILES, shared_tokenizer

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


def ladder(given: InputSources) -> list[Rung]:
    """List the runs: the codec, the talker on its codes, the predictor, and the speaker encoder, if any."""
    config = _config(given)
    given.check_rows(config.max_positions)

    def rung(
        part: str, stages: list[Stage], state: Callable[[InputSources], State], keeps: tuple[str, ...] = ()
    ) -> Rung:
        return Rung(part, Qwen3Layers, stages, state, keeps=keeps, groups=tensor_group)

    found = [
        *qwen3_codec_rungs(given),
        rung("talker", talker_stages(config), talker_state, ("rows", "read")),
        rung("predictor", predictor_stages(config), predictor_state),
    ]
    if config.speaker_encoder is not None:
        found.append(rung("speaker", speaker_stages(config), speaker_state))
    return found


def talker_state(given: InputSources) -> State:
    """Build the inputs: a text, again and again, and the codec's codes; the second row begins later."""
    config, rows = _config(given), given.rows
    documents = given.documents["qwen3"]
    tokenizer = shared_tokenizer(*(documents[name] for name in FILES), config.text_vocab_size)
    ids = np.resize(np.array(tokenizer.encode(script(TEXT)), np.int32), rows + 1)
    codes = given.codes(config.n_codebooks, config.codebook_size, rows + 1)
    return {
        "text": np.stack([ids[:-1], ids[1:]]),
        "frames": np.stack([codes[:, :-1], codes[:, 1:]]),
    }


def predictor_state(given: InputSources) -> State:
    """Build the inputs: the talker's output at some steps, with the embeddings of the codes there."""
    frames = min(MOST_FRAMES, given.rows)
    hidden, read = (given.made[name][0, :frames].astype(np.float32) for name in ("rows", "read"))
    return {"stages": np.concatenate([hidden[:, None], read[:, :-1]], axis=1)}


def speaker_state(given: InputSources) -> State:
    """Build the input: mel frames of a sound."""
    config = _config(given).speaker_encoder
    assert config is not None
    samples = max(round(given.seconds * config.sample_rate), config.least_samples)
    mel = speaker.mel(sound(config.sample_rate, samples, given.seed), config)
    return {"hidden": np.ascontiguousarray(mel.T[None])}


def tensor_group(name: str) -> str:
    """Name the report line for a tensor, by its function in the network."""
    return next(group for part, group in GROUPS.items() if part in name)


def _config(given: InputSources) -> Qwen3Config:
    return config_of(given.configs, "qwen3", Qwen3Config)
