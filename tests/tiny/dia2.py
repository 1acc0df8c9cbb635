"""Dia2 of the real structure, small: the committed golden files as a published folder, and random weights."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from safetensors.numpy import load_file, save_file

from tests.golden.cases import DEFAULT
from tests.tiny.networks import Weights
from tts_core.dia2.config import Dia2Config
from tts_core.dia2.tokenizer import FILE, Dia2Tokenizer
from tts_core.prompt import Prompt, Reference, Word

GOLDEN = DEFAULT / "dia2"
CODECS = {"v_main": "mimi", "v_text": "mimi_odd"}


def published_dia2(folder: Path, name: str = "v_main") -> Path:
    """Lay out a golden checkpoint as it is published, its codec in a subfolder."""
    (folder / "codec").mkdir(parents=True)
    for file in ("config.json", "model.safetensors"):
        shutil.copy(GOLDEN / name / file, folder / file)
        shutil.copy(GOLDEN / CODECS[name] / file, folder / "codec" / file)
    for file in (GOLDEN / "tokenizer").iterdir():
        shutil.copy(file, folder / file.name)
    return folder


def tokenizer() -> Dia2Tokenizer:
    return Dia2Tokenizer((GOLDEN / "tokenizer" / FILE).read_text("utf-8"))


def write_published(folder: Path, weights: Weights[Dia2Config]) -> Path:
    """Write weights as they are published, with the codec of `v_main`. The schedule must be without gaps."""
    published_dia2(folder)
    config = weights.config
    stacks = {}
    for name in ("transformer", "depformer"):
        stack = getattr(config, name)
        stacks[name] = {
            "n_layer": stack.num_hidden_layers,
            "n_embd": stack.hidden_size,
            "n_hidden": stack.intermediate_size,
            "gqa_query_heads": stack.num_attention_heads,
            "kv_heads": stack.num_key_value_heads,
            "gqa_head_dim": stack.head_dim,
        }
    depformer = {
        **stacks["depformer"],
        "apply_rope": config.depformer_has_rope,
        "text_embedding": config.depformer_has_text,
    }
    written = {
        "data": {
            "channels": config.n_streams + 2,
            "text_vocab_size": config.text_vocab_size,
            "audio_vocab_size": config.audio_vocab_size,
            "action_vocab_size": config.action_vocab_size,
            "text_pad_token_id": config.text_pad_id,
            "text_new_word_token_id": config.text_new_word_id,
            "text_zero_token_id": config.text_zero_id,
            "audio_pad_token_id": config.audio_pad_id,
            "audio_bos_token_id": config.audio_bos_id,
            "delay_pattern": list(config.delay_pattern),
            "second_stream_ahead": config.second_stream_ahead,
        },
        "model": {
            "decoder": {**stacks["transformer"], "low_rank_dim": config.low_rank_dim},
            "depformer": depformer,
            "rope_min_timescale": config.rope_min_timescale,
            "rope_max_timescale": config.rope_max_timescale,
            "normalization_layer_epsilon": config.norm_eps,
        },
        "runtime": {
            "weights_schedule": list(config.weights_schedule),
            "max_context_steps": config.max_context_steps,
        },
    }
    (folder / "config.json").write_text(json.dumps(written))
    save_file(weights.tensors, folder / "model.safetensors")
    return folder


def recording(name: str = "v_main") -> Prompt:
    """Two speakers with the times of their words."""
    vectors = load_file(GOLDEN / f"{name}_prefix" / "golden.safetensors")
    words = (Word("Hello", 0.05), Word("there,", 0.33), Word("friend.", 0.55, 0.9)), (Word("Oh,", 0.1, 0.2),)
    rate = 24000 if name == "v_main" else 750
    return Prompt(
        tuple(
            Reference(vectors[f"{key}.audio"], None, sample_rate=rate, words=said)
            for key, said in zip("ab", words, strict=True)
        )
    )
