"""The runs of Dia2 and its codec that `mlx-port verify` watches, and their inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tts_core.codecs.probes import mimi_probes
from tts_core.config import config_of
from tts_core.dia2.config import Dia2Config
from tts_core.dia2.machine import StateMachine
from tts_core.dia2.run import apply_delay
from tts_core.dia2.script import Reader
from tts_core.dia2.tokenizer import FILE, shared_tokenizer
from tts_core.nn.probe import TEXT, Framework, InputSources, Probe, passes

GROUPS = {
    "norm.weight": "norms",
    "action_head.": "norms",  # as small, and float32 as they are
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
EMBEDDINGS = r"text_embed|audio_embeds\.\d+"


def probes(sources: InputSources) -> list[Probe]:
    """List the runs: the codec in both directions, the transformer, then the depformer."""
    config = config_of(sources.configs, "dia2", Dia2Config)
    sources.check_rows(config.max_context_steps)
    texts = _texts(sources, config)
    codes = sources.codes(config.n_streams, config.codebook_size, sources.rows)
    return [
        *mimi_probes(sources),
        _transformer(config, codes, texts),
        _depformer(config, codes, texts, sources.random()),
    ]


def _transformer(config: Dia2Config, codes: np.ndarray, texts: np.ndarray) -> Probe:
    """A text at one word every few steps and delayed codes, in several calls; two rows, for guidance."""
    rows = codes.shape[1]
    delayed = apply_delay(codes, config.delay_pattern, config.audio_bos_id)[:, :rows]
    tokens = np.concatenate([texts[:rows], delayed.T], axis=1)
    other = tokens.copy()
    other[:, :2] = config.text_zero_id, config.text_pad_id
    both = np.stack([tokens, other]).astype(np.int32)

    def run(network: Any, framework: Framework) -> Mapping[str, Any]:
        transformer, hidden = network.transformer, []
        cache = transformer.new_cache()
        for start, stop in passes(rows):
            hidden.append(transformer(framework.array(both[:, start:stop]), start, cache))
        actions = [transformer.actions(rows) for rows in hidden]
        return {"actions": actions, "logits": [transformer.codes(rows) for rows in hidden]}

    watched = rf"transformer\.({EMBEDDINGS}|layers\.\d+|norm|action_head|cb0_head)"
    return Probe("dia2", "dia2", {"tokens": both}, run, watched, half="transformer", groups=GROUPS)


def _depformer(
    config: Dia2Config, codes: np.ndarray, texts: np.ndarray, random: np.random.Generator
) -> Probe:
    """All stages of some frames, which do not depend on each other."""
    frames = min(MOST_FRAMES, codes.shape[1])
    hidden = random.standard_normal((frames, config.transformer.hidden_size)).astype(np.float32)
    previous, text = codes[:-1, :frames], texts[1 : frames + 1].T

    def run(network: Any, framework: Framework) -> Mapping[str, Any]:
        depformer, x = network.depformer, framework.array(hidden)
        both = tuple(framework.array(np.ascontiguousarray(ids)) for ids in text)
        cache, logits = depformer.new_cache(), []
        for stage, ids in enumerate(previous):
            logits.append(depformer(stage, x, framework.array(np.ascontiguousarray(ids)), both, cache))
        return {"logits": logits}

    watched = rf"depformer\.({EMBEDDINGS}|depformer_in\.\d+|layers\.\d+|norm|logits\.\d+)"
    given = {"hidden": hidden, "codes": previous, "text": text}
    return Probe("dia2", "dia2", given, run, watched, half="depformer", groups=GROUPS)


def _texts(sources: InputSources, config: Dia2Config) -> np.ndarray:
    """Return the ids of both text streams. (rows + 1, 2) int32."""
    tokenizer = shared_tokenizer(sources.documents["dia2"][FILE], config.text_vocab_size)
    reader = Reader.of(tokenizer, config.text_new_word_id, 1.0)
    machine = StateMachine.of(config, reader.entries(TEXT), 2)
    ids = [[config.text_bos_id, config.text_pad_id]]
    for step in range(sources.rows):
        emitted = machine.step(step, 1)
        ids.append([emitted.main, emitted.second])
    return np.array(ids, np.int32)
