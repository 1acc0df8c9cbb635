"""The runs of Dia2 and its codec that `mlx-port verify` compares, and their inputs."""

from __future__ import annotations

import numpy as np

from tts_core.codecs.ladder import mimi_rungs
from tts_core.config import config_of
from tts_core.dia2.config import Dia2Config
from tts_core.dia2.grid import apply_delay
from tts_core.dia2.layer_order import depformer_stages, transformer_stages
from tts_core.dia2.layers import Dia2Layers
from tts_core.dia2.machine import StateMachine
from tts_core.dia2.script import Reader
from tts_core.dia2.shapes import is_norm
from tts_core.dia2.tokenizer import FILE, shared_tokenizer
from tts_core.nn.ladder import TEXT, InputSources, Rung
from tts_core.nn.layer_order import State

GROUPS = {
    ".attn.": "attention",
    ".self_attention.": "depformer attention",
    ".mlp.": "mlp",
    "audio_embeds.": "embeddings",
    "text_embed.": "embeddings",
    "depformer_in.": "depformer input",
    "_head.": "heads",
    ".logits.": "heads",
}
MOST_FRAMES = 16  # of the depformer, whose frames do not depend on each other


def ladder(given: InputSources) -> list[Rung]:
    """List the runs: the codec's encoder and decoder, the transformer on its codes, then the depformer."""
    config = config_of(given.configs, "dia2", Dia2Config)
    given.check_rows(config.max_context_steps)
    return [
        *mimi_rungs(given),
        Rung(
            "dia2",
            Dia2Layers,
            transformer_stages(config),
            transformer_state,
            keeps=("rows",),
            groups=tensor_group,
        ),
        Rung("dia2", Dia2Layers, depformer_stages(config), depformer_state, groups=tensor_group),
    ]


def transformer_state(given: InputSources) -> State:
    """Build the inputs: a text at one word every few steps, and the codec's codes, delayed; two rows."""
    config, rows = config_of(given.configs, "dia2", Dia2Config), given.rows
    streams, texts = _codes(given), _texts(given)
    delayed = apply_delay(streams, config.delay_pattern, config.audio_bos_id)[:, :rows]
    tokens = np.concatenate([texts[:rows], delayed.T], axis=1)
    other = tokens.copy()
    other[:, :2] = config.text_zero_id, config.text_pad_id
    return {"tokens": np.stack([tokens, other]).astype(np.int32)}


def depformer_state(given: InputSources) -> State:
    """Build the inputs: the transformer's output at some steps, with the codes of their frames."""
    frames = min(MOST_FRAMES, given.rows)
    return {
        "frames": given.made["rows"][0, :frames].astype(np.float32),
        "previous": np.ascontiguousarray(_codes(given)[:-1, :frames].T),
        "text": _texts(given)[1 : frames + 1],
    }


def tensor_group(name: str) -> str:
    """Name the report line for a tensor, by its function in the network."""
    if is_norm(name):
        return "norms"
    return next(group for part, group in GROUPS.items() if part in name)


def _codes(given: InputSources) -> np.ndarray:
    config = config_of(given.configs, "dia2", Dia2Config)
    return given.codes(config.n_streams, config.codebook_size, given.rows)


def _texts(given: InputSources) -> np.ndarray:
    """Return the ids of both text streams. (rows + 1, 2) int32."""
    config = config_of(given.configs, "dia2", Dia2Config)
    tokenizer = shared_tokenizer(given.documents["dia2"][FILE], config.text_vocab_size)
    reader = Reader.of(tokenizer, config.text_new_word_id, 1.0)
    machine, ids = (
        StateMachine.of(config, reader.entries(TEXT), 2),
        [[config.text_bos_id, config.text_pad_id]],
    )
    for step in range(given.rows):
        emitted = machine.step(step, 1)
        ids.append([emitted.main, emitted.second])
    return np.array(ids, np.int32)
