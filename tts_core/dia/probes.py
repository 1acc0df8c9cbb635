"""Whole runs of Dia and its codec, to compare another port with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tts_core.codecs.dac import DacConfig
from tts_core.config import config_of
from tts_core.dia.config import DiaConfig
from tts_core.dia.grid import apply_delay
from tts_core.dia.text import tokenize
from tts_core.nn.ladder import InputSources, signal
from tts_core.nn.layer_order import single_passes
from tts_core.nn.layers import Framework
from tts_core.nn.probe import Probe

TEXT = "[S1] The quick brown fox jumps. [S2] Does it? (laughs)"


def probes(sources: InputSources) -> list[Probe]:
    """List the runs: Dia, Dia with the text as the port prepares it, and both directions of the codec."""
    config = config_of(sources.configs, "dia", DiaConfig)
    codec = config_of(sources.configs, "dac", DacConfig)
    sources.check_rows(config.decoder_config.max_position_embeddings)
    rng = np.random.default_rng(sources.seed)
    dia = _dia(config, sources.rows, rng)
    samples = signal(codec, sources.seconds, sources.seed)
    codes = rng.integers(0, codec.codebook_size, (1, codec.n_codebooks, sources.rows), dtype=np.int32)

    def encode(network: Any, framework: Framework) -> Mapping[str, Any]:
        return {"codes": network.encode(samples)}

    def decode(network: Any, framework: Framework) -> Mapping[str, Any]:
        return {"samples": network.decode_whole(framework.array(codes))}

    return [
        dia,
        replace(dia, name="dia, prepared text"),
        Probe("codec encoder", "dac", {"samples": samples}, encode),
        Probe("codec decoder", "dac", {"codes": codes}, decode),
    ]


def _dia(config: DiaConfig, rows: int, rng: np.random.Generator) -> Probe:
    """The unconditional text, the text, then given rows: half of them at once, the others one at a time."""
    channels = config.decoder_config.num_channels
    said = rng.integers(0, config.eos_token_id, (channels, rows), dtype=np.int32)
    delayed = apply_delay(said, config.delay_pattern, config.bos_token_id, config.pad_token_id)
    grid = np.concatenate((np.full((1, channels), config.bos_token_id, np.int32), delayed.T))[:rows]
    ids, tokens = tokenize(TEXT).astype(np.int32), np.stack((grid, grid))

    def run(network: Any, framework: Framework) -> Mapping[str, Any]:
        nothing = network.encode_nothing()
        source, cache = network.read([framework.array(ids)], nothing), network.new_cache()
        pieces = [framework.array(tokens[:, start:stop]) for start, stop in single_passes(rows)]
        return {"logits": [network(piece, cache, source) for piece in pieces]}

    given = {"text": TEXT, "ids": ids, "tokens": tokens, "passes": single_passes(rows)}
    return Probe("dia", "dia", given, run)
