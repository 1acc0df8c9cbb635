"""The runs of MARS5's networks that `mlx-port verify` watches, and their inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tts_core.codecs.probes import encodec_probes, vocos_probe
from tts_core.config import config_of
from tts_core.mars5.config import CodecLMConfig, ResidualTransformerConfig
from tts_core.mars5.request import BANDWIDTH_ID
from tts_core.mars5.tokens import SPEECH_FILE, TEXT_FILE, CodecVocabulary
from tts_core.nn.probe import TEXT, Framework, InputSources, Probe, single_passes

REFERENCE_FRAMES = 24
TIMESTEP = 100  # half of the diffusion's
SPEAKER = r"spk_encoder\.(layers\.\d+|norm)"


def probes(sources: InputSources) -> list[Probe]:
    """List the runs: the codecs, the AR on ids of text and speech, the NAR on noisy codes."""
    return [*encodec_probes(sources), vocos_probe(sources, BANDWIDTH_ID), _ar(sources), _nar(sources)]


def _ar(sources: InputSources) -> Probe:
    """A reference, and ids after its vector, half text, half speech, in several calls."""
    config, vocabulary = config_of(sources.configs, "mars5", CodecLMConfig), _vocabulary(sources)
    text = vocabulary.shallow(TEXT).tokens[: max(1, sources.rows // 2)]
    codes = sources.codes(config.n_codebooks, config.codebook_rows - 1, max(REFERENCE_FRAMES, sources.rows))
    speech = vocabulary.first_speech + np.array(vocabulary.speech.encode(codes[0].tolist()), np.int32)
    ids = np.concatenate((text, np.resize(speech, max(0, sources.rows - 1 - len(text)))))[None]
    ids, reference = ids.astype(np.int32), codes.T[None, :REFERENCE_FRAMES]

    def run(network: Any, framework: Framework) -> Mapping[str, Any]:
        speaker = network.speaker(framework.array(reference))
        rows = network.rows(speaker, framework.array(ids))
        count = rows.shape[1]
        positions, cache = network.positions(count), network.new_cache(count)
        return {
            "logits": [
                network(rows[:, start:stop], positions(start, stop - start), cache)
                for start, stop in single_passes(count)
            ]
        }

    watched = rf"ref_chunked_emb|{SPEAKER}|embed|ar\.(layers\.\d+|norm|output)"
    given, targets = {"reference": reference, "ids": ids}, np.append(ids[0], -1)
    return Probe("mars5", "mars5", given, run, watched, targets=targets)


def _nar(sources: InputSources) -> Probe:
    """A reference, a text, and codes of which half are noise, with and without a speaker."""
    config = config_of(sources.configs, "mars5_nar", ResidualTransformerConfig)
    classes, random = min(config.n_classes, config.codebook_rows), sources.random()
    codes = sources.codes(config.n_codebooks, classes, max(REFERENCE_FRAMES, sources.rows))
    noisy = np.where(random.random(codes.shape) < 0.5, random.integers(0, classes, codes.shape), codes)
    noisy, reference = noisy.T[None, : sources.rows].astype(np.int32), codes.T[None, :REFERENCE_FRAMES]
    ids, step = _vocabulary(sources).shallow(TEXT).tokens[None], np.array([TIMESTEP], np.int32)

    def run(network: Any, framework: Framework) -> Mapping[str, Any]:
        speakers = [network.speaker(framework.array(reference)), network.no_speaker()]
        source = network.read(
            framework.array(ids),
            framework.concatenate(speakers),
            frames=noisy.shape[1],
            timesteps=TIMESTEP + 1,
        )
        return {"logits": network(framework.array(noisy), source, framework.array(step))}

    watched = (
        rf"ref_embedder|{SPEAKER}|text_embed|timestep_(en|de)coder_emb\.[02]|residual_encoder"
        r"|tfm\.(en|de)coder\.(layers\.\d+|norm)|residual_decoder\.\d+\.[01]"
    )
    targets = codes.T[: sources.rows, : config.n_output_codebooks]
    given = {"reference": reference, "ids": ids, "codes": noisy, "timestep": TIMESTEP}
    return Probe("nar", "mars5_nar", given, run, watched, targets=targets)


def _vocabulary(sources: InputSources) -> CodecVocabulary:
    texts, ids = sources.documents["mars5"], config_of(sources.configs, "mars5", CodecLMConfig).vocab_size
    return CodecVocabulary.read(texts[TEXT_FILE], texts[SPEECH_FILE], vocab_size=ids)
