"""Dia and its codec: what is run, and on what."""

from __future__ import annotations

import numpy as np

from mlx_port.commands.verify.inputs import Given, no_codes, signal
from mlx_port.commands.verify.ladder import Rung
from tts_core.codecs.layer_order import dac_decode_stages, dac_encode_stages
from tts_core.dia.delay import apply_delay
from tts_core.dia.layer_order import dia_stages
from tts_core.dia.tokenizer import tokenize
from tts_core.nn.layer_order import State

TEXT = "[S1] The quick brown fox jumps over the lazy dog. [S2] Does it? (laughs) It does."


def ladder(given: Given) -> list[Rung]:
    """The codec there and back, then Dia on its codes."""
    dia, codec = given.configs["dia"], given.configs["dac"]
    given.check_rows(dia.decoder_config.max_position_embeddings)
    layers = "codecs.layerwise:DacLayers"
    return [
        Rung("codec", "dac", layers, dac_encode_stages(codec), _heard, keeps=("codes",)),
        Rung("codec", "dac", layers, dac_decode_stages(codec), lambda given: {"codes": given.made["codes"]}),
        Rung(
            "dia",
            "dia",
            "dia.layerwise:DiaLayers",
            dia_stages(dia),
            dia_state,
            targets=lambda state: _targets(state["tokens"][0], dia.eos_token_id),
        ),
    ]


def dia_state(given: Given) -> State:
    """A text, and grid rows with guidance, the unconditional one second; codes of the codec's are said."""
    config, rows = given.configs["dia"], given.rows
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


def _heard(given: Given) -> State:
    codec = given.configs["dac"]
    samples = signal(codec, given.seconds, given.seed)
    return {"samples": samples, "codes": no_codes(samples, codec.hop_length)}


def _targets(grid: np.ndarray, eos: int) -> np.ndarray:
    """The codes of the next row; a forced BOS, EOS or PAD is none. (T, C) → (T, C)."""
    following = np.concatenate((grid[1:], np.full_like(grid[:1], eos)))
    return np.where(following < eos, following, -1)
