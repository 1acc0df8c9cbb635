"""The runs of Dia and its codec that `mlx-port verify` watches, and their inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tts_core.codecs.probes import dac_probes
from tts_core.config import config_of
from tts_core.dia.config import DiaConfig
from tts_core.dia.grid import apply_delay
from tts_core.dia.text import tokenize
from tts_core.nn.probe import Framework, InputSources, Probe, single_passes

TEXT = "[S1] The quick brown fox jumps over the lazy dog. [S2] Does it? (laughs) It does."
ROWS = (
    r"model\.encoder\.(embedding|layers\.\d+|norm)|logits_dense"
    r"|model\.decoder\.(embeddings|layers\.\d+(\.cross_attention\.[kv]_proj)?|norm)"
)
GROUPS = {
    "norm.weight": "norms",
    ".self_attention.": "self-attention",
    ".cross_attention.": "cross-attention",
    ".mlp.": "mlp",
    ".embedding": "embeddings",
    "logits_dense.": "head",
}


def probes(sources: InputSources) -> list[Probe]:
    """List the runs: the codec in both directions, then Dia."""
    return [*dac_probes(sources), _dia(sources)]


def _dia(sources: InputSources) -> Probe:
    """The unconditional text, the text, then rows of codes, in several calls; two rows, for guidance."""
    config, rows = config_of(sources.configs, "dia", DiaConfig), sources.rows
    sources.check_rows(config.decoder_config.max_position_embeddings)
    channels, eos = config.decoder_config.num_channels, config.eos_token_id
    delayed = apply_delay(
        sources.codes(channels, eos, rows), config.delay_pattern, config.bos_token_id, config.pad_token_id
    )
    grid = np.concatenate((np.full((1, channels), config.bos_token_id, np.int32), delayed.T))[:rows]
    ids = tokenize(TEXT)[: config.max_text_bytes] % config.encoder_config.vocab_size
    ids, tokens = ids.astype(np.int32), np.stack((grid, grid)).astype(np.int32)

    def run(network: Any, framework: Framework) -> Mapping[str, Any]:
        empty = network.encode_empty()
        source, cache = network.read([framework.array(ids)], empty), network.new_cache()
        pieces = [framework.array(tokens[:, start:stop]) for start, stop in single_passes(rows)]
        return {"logits": [network(piece, cache, source) for piece in pieces]}

    given = {"text": TEXT, "ids": ids, "tokens": tokens, "passes": single_passes(rows)}
    following = np.concatenate(
        (grid[1:], np.full_like(grid[:1], eos))
    )  # a forced BOS, EOS or PAD is no target
    targets = np.where(following < eos, following, -1)
    return Probe("dia", "dia", given, run, ROWS, targets=targets, groups=GROUPS)
