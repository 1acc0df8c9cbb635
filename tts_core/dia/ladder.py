"""The runs of Dia and its codec that `mlx-port verify` compares, and their inputs."""

from __future__ import annotations

import numpy as np

from tts_core.codecs.ladder import dac_rungs
from tts_core.config import config_of
from tts_core.dia.config import DiaConfig
from tts_core.dia.grid import apply_delay
from tts_core.dia.layer_order import dia_stages
from tts_core.dia.layers import DiaLayers
from tts_core.dia.shapes import is_norm
from tts_core.dia.text import tokenize
from tts_core.nn.ladder import InputSources, Rung
from tts_core.nn.layer_order import State

TEXT = "[S1] The quick brown fox jumps over the lazy dog. [S2] Does it? (laughs) It does."
GROUPS = {
    ".self_attention.": "self-attention",
    ".cross_attention.": "cross-attention",
    ".mlp.": "mlp",
    ".embedding": "embeddings",
    "logits_dense.": "head",
}


def ladder(given: InputSources) -> list[Rung]:
    """List the runs: the codec's encoder and decoder, then Dia on its codes."""
    dia = config_of(given.configs, "dia", DiaConfig)
    given.check_rows(dia.decoder_config.max_position_embeddings)
    return [
        *dac_rungs(given),
        Rung(
            "dia",
            DiaLayers,
            dia_stages(dia),
            dia_state,
            targets=lambda state: _targets(state["tokens"][0], dia.eos_token_id),
            groups=tensor_group,
        ),
    ]


def dia_state(given: InputSources) -> State:
    """Build the inputs: a text, and the codec's codes as grid rows, conditional then unconditional."""
    config, rows = config_of(given.configs, "dia", DiaConfig), given.rows
    channels = config.decoder_config.num_channels
    said = given.codes(channels, config.eos_token_id, rows)
    delayed = apply_delay(said, config.delay_pattern, config.bos_token_id, config.pad_token_id)
    grid = np.concatenate((np.full((1, channels), config.bos_token_id, np.int32), delayed.T))[:rows]
    ids = tokenize(TEXT)[: config.max_text_bytes] % config.encoder_config.vocab_size
    return {
        "ids": ids[None].astype(np.int32),
        "zero": np.zeros((1, 1), np.int32),
        "tokens": np.stack((grid, grid)).astype(np.int32),
    }


def tensor_group(name: str) -> str:
    """Name the report line for a tensor, by its function in the network."""
    if is_norm(name):
        return "norms"
    return next(group for part, group in GROUPS.items() if part in name)


def _targets(grid: np.ndarray, eos: int) -> np.ndarray:
    """Return the codes of the next row; a forced BOS, EOS or PAD is not a target. (T, C) → (T, C)."""
    following = np.concatenate((grid[1:], np.full_like(grid[:1], eos)))
    return np.where(following < eos, following, -1)
