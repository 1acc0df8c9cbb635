"""Configuration and tensor names of Qwen3-TTS: a talker, and a predictor of the other codes of a frame.

Source: QwenLM/Qwen3-TTS@022e286, Apache-2.0; names are the published ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Annotated, Any

from tts_core.config import HARMLESS, SAVED, Config, Count, FileForm, Id, at, heads_faults, mapping
from tts_core.printable import named
from tts_core.qwen3 import speaker
from tts_core.qwen3.speaker import SpeakerConfig
from tts_core.shapes import Module, Shapes, attention, biased, shapes, weight

MODES = BASE, CUSTOM_VOICE, VOICE_DESIGN = "base", "custom_voice", "voice_design"
SUPPRESSED = 1024  # last ids of the vocabulary, which are no codes; only the end of speech is drawn of them
TOKENIZER = "qwen3_tts_tokenizer_12hz"
_T, _P, _ENCODER = "talker_config", "talker_config.code_predictor_config", "speaker_encoder_config"


class Qwen3StackConfig(Config, title="Qwen3-TTS config"):
    """Shape of one stack of layers."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: Count
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rope_theta: float
    rms_norm_eps: float

    def faults(self) -> Iterator[str]:
        """Check the heads."""
        yield from heads_faults(self.num_attention_heads, self.num_key_value_heads, self.head_dim)


class Speaker(Config, title="speaker"):
    """A built-in voice. dialect: name of the language that it speaks instead of Chinese, if any."""

    name: str
    id: Id
    dialect: str | None


def _speakers(ids: Any, dialects: Any, found: object) -> Any:
    return tuple(Speaker(str(name), id, dialects.get(name) or None) for name, id in ids.items())


class Qwen3Config(Config, title="Qwen3-TTS config"):
    """Shape, ids and mode of a checkpoint. Numbers only: no dtype, device or path."""

    talker: Qwen3StackConfig = at(_T)
    predictor: Qwen3StackConfig = at(_P)
    vocab_size: int = at(f"{_T}.vocab_size")  # first codes, and ids that are no codes
    codebook_size: int = at(f"{_P}.vocab_size")  # of the other codes
    n_codebooks: Count = at(f"{_T}.num_code_groups")
    text_vocab_size: int = at(f"{_T}.text_vocab_size")
    text_hidden_size: int = at(f"{_T}.text_hidden_size")
    max_positions: int = at(f"{_T}.max_position_embeddings")
    mode: Annotated[str, MODES] = at("tts_model_type")
    model_size: str = at("tts_model_size", convert=lambda size, _: str(size))
    im_start_id: Id = at("im_start_token_id")
    im_end_id: Id = at("im_end_token_id")
    tts_pad_id: Id = at("tts_pad_token_id")
    tts_bos_id: Id = at("tts_bos_token_id")
    tts_eos_id: Id = at("tts_eos_token_id")
    codec_pad_id: Id = at(f"{_T}.codec_pad_id")
    codec_bos_id: Id = at(f"{_T}.codec_bos_id")
    codec_eos_id: Id = at(f"{_T}.codec_eos_token_id")
    codec_think_id: Id = at(f"{_T}.codec_think_id")
    codec_nothink_id: Id = at(f"{_T}.codec_nothink_id")
    codec_think_bos_id: Id = at(f"{_T}.codec_think_bos_id")
    codec_think_eos_id: Id = at(f"{_T}.codec_think_eos_id")
    # dialects among them
    languages: tuple[tuple[str, Id], ...] = at(
        f"{_T}.codec_language_id", convert=lambda ids, _: tuple(ids.items())
    )
    speakers: tuple[Speaker, ...] = at(f"{_T}.spk_id", f"{_T}.spk_is_dialect", convert=_speakers)
    # that reads a recording; of the mode `base` only
    speaker_encoder: SpeakerConfig | None = at(_ENCODER, otherwise=None)

    def faults(self) -> Iterator[str]:
        """Check that ids are in their vocabularies, and that the parts fit."""
        if self.vocab_size <= SUPPRESSED or self.n_codebooks < 2:
            least = f"more than {SUPPRESSED} and 1 are needed"
            yield f"{self.vocab_size} ids, {self.n_codebooks} codebooks; {least}"
        encoder, width = self.speaker_encoder, self.talker.hidden_size
        if (encoder is None) == (self.mode == BASE) or (encoder and encoder.enc_dim != width):
            found = f"of width {encoder.enc_dim}" if encoder else "missing"
            needed = f"needs one of width {width}" if self.mode == BASE else "has none"
            yield f"the speaker encoder is {found}; the mode {self.mode} {needed}"
        own = asdict(self)
        codec = [id for name, id in own.items() if name.startswith("codec_")]
        codec += [id for _, id in self.languages] + [speaker.id for speaker in self.speakers]
        text = [id for name, id in own.items() if name.endswith("_id") and not name.startswith("codec_")]
        for what, ids, most in (("codec", codec, self.vocab_size), ("text", text, self.text_vocab_size)):
            if max(ids) >= most:
                yield f"{what} id {max(ids)}; there are {most}"
        known = dict(self.languages)
        strange = [
            own_speaker.name
            for own_speaker in self.speakers
            if own_speaker.dialect and own_speaker.dialect not in known
        ]
        if strange:
            yield f"the dialect of {named(strange)} is no language"

    @property
    def numbers(self) -> int:
        """Random numbers that the draws of a frame take."""
        return self.vocab_size + (self.n_codebooks - 1) * self.codebook_size

    @property
    def is_projected(self) -> bool:
        """True if the predictor's width differs from the talker's."""
        return self.talker.hidden_size != self.predictor.hidden_size

    @property
    def takes_instruction(self) -> bool:
        """True if an instruction changes the voice."""
        small = self.model_size in "0b6"  # a part of it, as in the original: also an empty size
        return self.mode == VOICE_DESIGN or (self.mode == CUSTOM_VOICE and not small)


_UNUSED = (
    *(*HARMLESS, "attention_dropout", "use_cache", "layer_types", "max_window_layers", "sliding_window"),
    "rope_scaling",  # the three streams of positions are equal, so sections have no effect
    *("position_id_per_seconds", "assistant_token_id"),
    # what any configuration of transformers may state; its generate() is not used
    *("torchscript", "use_bfloat16", "tf_legacy_loss", "pruned_heads", "tie_word_embeddings"),
    *("tie_encoder_decoder", "chunk_size_feed_forward", "is_encoder_decoder", "is_decoder"),
    *("add_cross_attention", "cross_attention_hidden_size", "finetuning_task", "id2label", "label2id"),
    *("task_specific_params", "problem_type", "tokenizer_class", "prefix", "bos_token_id", "pad_token_id"),
    *("eos_token_id", "sep_token_id", "decoder_start_token_id", "max_length", "min_length", "do_sample"),
    *("early_stopping", "num_beams", "num_beam_groups", "diversity_penalty", "temperature", "top_k"),
    *("top_p", "typical_p", "repetition_penalty", "length_penalty", "no_repeat_ngram_size"),
    *("encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences", "output_scores"),
    *("return_dict_in_generate", "forced_bos_token_id", "forced_eos_token_id", "remove_invalid_values"),
    *("exponential_decay_length_penalty", "suppress_tokens", "begin_suppress_tokens"),
)
_FIXED = {"hidden_act": "silu", "attention_bias": False, "use_sliding_window": False}
_FILE = FileForm(
    "Qwen3-TTS config.json",
    unused={
        "": _UNUSED,
        _T: _UNUSED,
        _P: ("max_position_embeddings", *_UNUSED),
        _ENCODER: SAVED,
    },
    fixed={"tokenizer_type": TOKENIZER}
    | {f"{part}.{name}": value for part in (_T, _P) for name, value in _FIXED.items()},
    equal={f"{_P}.num_code_groups": "n_codebooks"},
)


def read_published(config: Mapping[str, Any]) -> Qwen3Config:
    """Read the config.json of a published folder."""
    if (
        mapping(config, _FILE.where).get("tts_model_type") != BASE
    ):  # a fine-tuned folder keeps the section of the Base that it was
        config = {name: value for name, value in config.items() if name != _ENCODER}
    return Qwen3Config.read(_FILE, config)


def read_converted(config: Mapping[str, Any]) -> Qwen3Config:
    """Read the published config.json, or our own schema, which older versions wrote."""
    return read_published(config) if _T in config else Qwen3Config.from_dict(config)


def parameter_shapes(config: Qwen3Config) -> Shapes:
    """Map canonical names to PyTorch shapes."""
    width, inner, narrow = config.talker.hidden_size, config.text_hidden_size, config.predictor.hidden_size
    codes, stages = config.codebook_size, config.n_codebooks - 1
    predictor: dict[str, Module] = {
        "model.codec_embedding": [weight(codes, width)] * stages,
        "model": _stack(config.predictor),
        "lm_head": [weight(codes, narrow)] * stages,
    }
    if config.is_projected:
        predictor["small_to_mtp_projection"] = biased(narrow, width)
    found: dict[str, Module] = {
        "talker.model.codec_embedding": weight(config.vocab_size, width),
        "talker.model.text_embedding": weight(config.text_vocab_size, inner),
        "talker.model": _stack(config.talker),
        "talker.text_projection.linear_fc1": biased(inner, inner),
        "talker.text_projection.linear_fc2": biased(width, inner),
        "talker.codec_head": weight(config.vocab_size, width),
        "talker.code_predictor": predictor,
    }
    if config.speaker_encoder is not None:
        found["speaker_encoder"] = speaker.parameter_shapes(config.speaker_encoder)
    return shapes(found)


def _stack(config: Qwen3StackConfig) -> Module:
    width, inner = config.hidden_size, config.intermediate_size
    layer = {
        "input_layernorm": weight(width),
        "self_attn": attention(config),
        "self_attn.q_norm": weight(config.head_dim),
        "self_attn.k_norm": weight(config.head_dim),
        "post_attention_layernorm": weight(width),
        "mlp.gate_proj": weight(inner, width),
        "mlp.up_proj": weight(inner, width),
        "mlp.down_proj": weight(width, inner),
    }
    return {"layers": [layer] * config.num_hidden_layers, "norm": weight(width)}


def stays_float32(name: str) -> bool:
    """Match the norms, and the speaker encoder."""
    return name.endswith("norm.weight") or name.startswith("speaker_encoder.")


_LARGE = re.compile(r"^talker\.(model\.layers\.\d+\.(self_attn|mlp)\.\w+_proj|codec_head)\.weight$")


def is_large(name: str) -> bool:
    """Match the linears that are quantized: the talker's layers and head."""
    return _LARGE.search(name) is not None
