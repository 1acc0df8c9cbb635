"""Configuration and tensor names of Qwen3-TTS: a talker, and a predictor of the other codes of a frame.

Source: QwenLM/Qwen3-TTS@022e286, Apache-2.0; names are the published ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from tts_core.config import Schema, check_numbers, exact_fields, mapping, section
from tts_core.errors import CheckpointError
from tts_core.printable import named
from tts_core.qwen3 import speaker
from tts_core.qwen3.speaker import SpeakerConfig

MODES = BASE, CUSTOM_VOICE, VOICE_DESIGN = "base", "custom_voice", "voice_design"
SUPPRESSED = 1024  # last ids of the vocabulary, which are no codes; only the end of speech is drawn of them


@dataclass(frozen=True)
class Qwen3StackConfig:
    """Shape of one stack of layers."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rope_theta: float
    rms_norm_eps: float

    def __post_init__(self) -> None:
        check_numbers(self, "Qwen3-TTS config")
        if self.num_attention_heads % self.num_key_value_heads or self.head_dim % 2:
            raise CheckpointError(
                f"Qwen3-TTS config: {self.num_attention_heads} heads of {self.head_dim} for "
                f"{self.num_key_value_heads} key heads; give a multiple, and an even width"
            )


@dataclass(frozen=True)
class Speaker:
    """A built-in voice. dialect: name of the language that it speaks instead of Chinese, if any."""

    name: str
    id: int
    dialect: str | None


@dataclass(frozen=True)
class Qwen3Config(Schema):
    """Shape, ids and mode of a checkpoint. Numbers only: no dtype, device or path."""

    talker: Qwen3StackConfig
    predictor: Qwen3StackConfig
    vocab_size: int  # first codes, and ids that are no codes
    codebook_size: int  # of the other codes
    n_codebooks: int
    text_vocab_size: int
    text_hidden_size: int
    max_positions: int
    mode: str  # one of MODES
    model_size: str
    im_start_id: int
    im_end_id: int
    tts_pad_id: int
    tts_bos_id: int
    tts_eos_id: int
    codec_pad_id: int
    codec_bos_id: int
    codec_eos_id: int
    codec_think_id: int
    codec_nothink_id: int
    codec_think_bos_id: int
    codec_think_eos_id: int
    languages: tuple[tuple[str, int], ...]  # dialects among them
    speakers: tuple[Speaker, ...]
    speaker_encoder: SpeakerConfig | None  # that reads a recording; of the mode `base` alone

    @property
    def numbers(self) -> int:
        """Random numbers that the draws of a frame take."""
        return self.vocab_size + (self.n_codebooks - 1) * self.codebook_size

    def __post_init__(self) -> None:
        check_numbers(self, "Qwen3-TTS config")
        if self.mode not in MODES:
            raise CheckpointError(f"Qwen3-TTS config: mode {self.mode!r:.40} is none of {', '.join(MODES)}")
        if self.vocab_size <= SUPPRESSED or self.n_codebooks < 2:
            raise CheckpointError(
                f"Qwen3-TTS config: {self.vocab_size} ids, {self.n_codebooks} codebooks; "
                f"more than {SUPPRESSED} and 1 are needed"
            )
        encoder, width = self.speaker_encoder, self.talker.hidden_size
        if (encoder is None) == (self.mode == BASE) or (encoder and encoder.enc_dim != width):
            found = f"of width {encoder.enc_dim}" if encoder else "missing"
            raise CheckpointError(
                f"Qwen3-TTS config: the speaker encoder is {found}; the mode {self.mode} "
                f"{f'needs one of width {width}' if self.mode == 'base' else 'has none'}"
            )
        codec = [value for name, value in asdict(self).items() if name.startswith("codec_")]
        codec += [id for _, id in self.languages] + [speaker.id for speaker in self.speakers]
        text = [getattr(self, name) for name in _TEXT_IDS.values()]
        for ids, most, what in (
            (codec, self.vocab_size, "codec"),
            (text, self.text_vocab_size, "text"),
        ):
            bad = [id for id in ids if type(id) is not int or not 0 <= id < most]
            if bad:
                raise CheckpointError(f"Qwen3-TTS config: {what} id {bad[0]!r:.40}; there are {most}")
        known = dict(self.languages)
        strange = [each.name for each in self.speakers if each.dialect and each.dialect not in known]
        if strange:
            raise CheckpointError(f"Qwen3-TTS config: the dialect of {named(strange)} is no language")

    @property
    def is_projected(self) -> bool:
        """True if the predictor's width differs from the talker's."""
        return self.talker.hidden_size != self.predictor.hidden_size

    @property
    def takes_instruction(self) -> bool:
        """True if an instruction changes the voice."""
        small = self.model_size in "0b6"  # a part of it, as in the original: also an empty size
        return self.mode == VOICE_DESIGN or (self.mode == CUSTOM_VOICE and not small)


_WHERE = "Qwen3-TTS config.json"
_TEXT_IDS = {  # published name → ours
    "im_start_token_id": "im_start_id",
    "im_end_token_id": "im_end_id",
    "tts_pad_token_id": "tts_pad_id",
    "tts_bos_token_id": "tts_bos_id",
    "tts_eos_token_id": "tts_eos_id",
}
_TOP = (*_TEXT_IDS, "tts_model_size", "tts_model_type", "tokenizer_type", "talker_config")
_HARMLESS = (
    "architectures",
    "model_type",
    "dtype",
    "torch_dtype",
    "transformers_version",
    "attention_dropout",
    "initializer_range",
    "use_cache",
    "layer_types",
    "max_window_layers",
    "sliding_window",
    "rope_scaling",  # the three streams of positions are equal, so sections have no effect
    "position_id_per_seconds",
    "assistant_token_id",
    # what any configuration of transformers may state; its generate() is not used
    *("_name_or_path", "return_dict", "torchscript", "use_bfloat16", "tf_legacy_loss", "pruned_heads"),
    *("tie_word_embeddings", "tie_encoder_decoder", "chunk_size_feed_forward", "is_encoder_decoder"),
    *("is_decoder", "add_cross_attention", "cross_attention_hidden_size", "finetuning_task", "id2label"),
    *("label2id", "task_specific_params", "problem_type", "tokenizer_class", "prefix", "bos_token_id"),
    *("pad_token_id", "eos_token_id", "sep_token_id", "decoder_start_token_id", "max_length", "min_length"),
    *("do_sample", "early_stopping", "num_beams", "num_beam_groups", "diversity_penalty", "temperature"),
    *("top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty", "no_repeat_ngram_size"),
    *("encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences", "output_scores"),
    *("return_dict_in_generate", "forced_bos_token_id", "forced_eos_token_id", "remove_invalid_values"),
    *("exponential_decay_length_penalty", "suppress_tokens", "begin_suppress_tokens"),
    *("output_hidden_states", "output_attentions"),
)
_STACK = tuple(field.name for field in fields(Qwen3StackConfig))
_FIXED = {"hidden_act": "silu", "attention_bias": False, "use_sliding_window": False}
_CODEC_IDS = {  # published name → ours
    "codec_pad_id": "codec_pad_id",
    "codec_bos_id": "codec_bos_id",
    "codec_eos_token_id": "codec_eos_id",
    "codec_think_id": "codec_think_id",
    "codec_nothink_id": "codec_nothink_id",
    "codec_think_bos_id": "codec_think_bos_id",
    "codec_think_eos_id": "codec_think_eos_id",
}
_TALKER = (
    *_STACK,
    *_CODEC_IDS,
    "vocab_size",
    "text_vocab_size",
    "text_hidden_size",
    "num_code_groups",
    "max_position_embeddings",
    "code_predictor_config",
    "codec_language_id",
    "spk_id",
    "spk_is_dialect",
)
_PREDICTOR = (*_STACK, "vocab_size", "num_code_groups")


def read_published(config: Mapping[str, Any]) -> Qwen3Config:
    """Read the config.json of a published folder."""
    top = section(config, _WHERE, _TOP, (_ENCODER, *_HARMLESS), {"tokenizer_type": TOKENIZER})
    talker = section(top["talker_config"], f"{_WHERE}: talker_config", _TALKER, _HARMLESS, _FIXED)
    where = f"{_WHERE}: code_predictor_config"
    unused = ("max_position_embeddings", *_HARMLESS)
    predictor = section(talker["code_predictor_config"], where, _PREDICTOR, unused, _FIXED)
    if predictor["num_code_groups"] != talker["num_code_groups"]:
        raise CheckpointError(f"{where}: num_code_groups is not the talker's")
    languages = mapping(talker["codec_language_id"], f"{_WHERE}: codec_language_id")
    speakers = mapping(talker["spk_id"], f"{_WHERE}: spk_id")
    dialects = mapping(talker["spk_is_dialect"], f"{_WHERE}: spk_is_dialect")
    mode = top["tts_model_type"]
    # a fine-tuned folder keeps the section of the Base that it began as
    encoder = top.get(_ENCODER) if mode == BASE else None
    return Qwen3Config(
        talker=Qwen3StackConfig(**{name: talker[name] for name in _STACK}),
        predictor=Qwen3StackConfig(**{name: predictor[name] for name in _STACK}),
        vocab_size=talker["vocab_size"],
        codebook_size=predictor["vocab_size"],
        n_codebooks=talker["num_code_groups"],
        text_vocab_size=talker["text_vocab_size"],
        text_hidden_size=talker["text_hidden_size"],
        max_positions=talker["max_position_embeddings"],
        mode=mode,
        model_size=str(top["tts_model_size"]),
        languages=tuple((str(name), id) for name, id in languages.items()),
        speakers=tuple(Speaker(str(name), id, dialects.get(name) or None) for name, id in speakers.items()),
        speaker_encoder=None if encoder is None else speaker.read_published(encoder),
        **{ours: top[theirs] for theirs, ours in _TEXT_IDS.items()},
        **{ours: talker[theirs] for theirs, ours in _CODEC_IDS.items()},
    )


_ENCODER = "speaker_encoder_config"
TOKENIZER = "qwen3_tts_tokenizer_12hz"


def read_converted(config: Mapping[str, Any]) -> Qwen3Config:
    """Read the published config.json, or our own schema, which older versions wrote."""
    if "talker_config" in config:
        return read_published(config)
    given = exact_fields(Qwen3Config, config, _WHERE)
    for name in ("talker", "predictor"):
        given[name] = Qwen3StackConfig(**exact_fields(Qwen3StackConfig, given[name], f"{_WHERE}: {name}"))
    given["languages"] = tuple((name, id) for name, id in given["languages"])
    given["speakers"] = tuple(
        Speaker(**exact_fields(Speaker, one, f"{_WHERE}: speakers")) for one in given["speakers"]
    )
    if given["speaker_encoder"] is not None:
        given["speaker_encoder"] = speaker.read_converted(given["speaker_encoder"])
    return Qwen3Config(**given)


def parameter_shapes(config: Qwen3Config) -> dict[str, tuple[int, ...]]:
    """Map canonical names to PyTorch shapes."""
    width, inner, narrow = config.talker.hidden_size, config.text_hidden_size, config.predictor.hidden_size
    stages = range(config.n_codebooks - 1)
    shapes: dict[str, tuple[int, ...]] = {
        "talker.model.codec_embedding.weight": (config.vocab_size, width),
        "talker.model.text_embedding.weight": (config.text_vocab_size, inner),
        **_stack_shapes(config.talker, "talker.model"),
        "talker.text_projection.linear_fc1.weight": (inner, inner),
        "talker.text_projection.linear_fc1.bias": (inner,),
        "talker.text_projection.linear_fc2.weight": (width, inner),
        "talker.text_projection.linear_fc2.bias": (width,),
        "talker.codec_head.weight": (config.vocab_size, width),
    }
    at = "talker.code_predictor"
    shapes |= {f"{at}.model.codec_embedding.{q}.weight": (config.codebook_size, width) for q in stages}
    shapes |= _stack_shapes(config.predictor, f"{at}.model")
    shapes |= {f"{at}.lm_head.{q}.weight": (config.codebook_size, narrow) for q in stages}
    if config.is_projected:
        shapes[f"{at}.small_to_mtp_projection.weight"] = (narrow, width)
        shapes[f"{at}.small_to_mtp_projection.bias"] = (narrow,)
    if config.speaker_encoder is not None:
        encoder = speaker.parameter_shapes(config.speaker_encoder)
        shapes |= {f"speaker_encoder.{name}": shape for name, shape in encoder.items()}
    return shapes


def _stack_shapes(config: Qwen3StackConfig, part: str) -> dict[str, tuple[int, ...]]:
    width, inner, head = config.hidden_size, config.intermediate_size, config.head_dim
    rows, key_rows = config.num_attention_heads * head, config.num_key_value_heads * head
    layer = {
        "input_layernorm.weight": (width,),
        "self_attn.q_proj.weight": (rows, width),
        "self_attn.k_proj.weight": (key_rows, width),
        "self_attn.v_proj.weight": (key_rows, width),
        "self_attn.o_proj.weight": (width, rows),
        "self_attn.q_norm.weight": (head,),
        "self_attn.k_norm.weight": (head,),
        "post_attention_layernorm.weight": (width,),
        "mlp.gate_proj.weight": (inner, width),
        "mlp.up_proj.weight": (inner, width),
        "mlp.down_proj.weight": (width, inner),
    }
    layers = range(config.num_hidden_layers)
    every = {f"{part}.layers.{i}.{name}": shape for i in layers for name, shape in layer.items()}
    return every | {f"{part}.norm.weight": (width,)}


def stays_float32(name: str) -> bool:
    """Match the norms, and the speaker encoder."""
    return name.endswith("norm.weight") or name.startswith("speaker_encoder.")


def mlx_axes(config: Qwen3Config, name: str, rank: int) -> tuple[int, ...] | None:
    """Return the axis order that turns a convolution into MLX's channels-last layout."""
    return (0, 2, 1) if rank == 3 else None


_LARGE = re.compile(r"^talker\.(model\.layers\.\d+\.(self_attn|mlp)\.\w+_proj|codec_head)\.weight$")


def is_large(name: str) -> bool:
    """Match the linears that are quantized: the talker's layers and head."""
    return _LARGE.search(name) is not None
