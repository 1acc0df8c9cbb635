"""Full-size random checkpoints in their published forms: names, layouts, number formats."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from converters.files.dtypes import narrow
from converters.files.writer import SafetensorsWriter, TensorEntry
from tts_core.codecs.qwen3_codec import QWEN3_CODEC_12HZ, Qwen3CodecConfig
from tts_core.dia2.config import Dia2Config, Dia2StackConfig
from tts_core.dia2.model import DIA2_1B, DIA2_2B
from tts_core.models import MODELS
from tts_core.qwen3.config import Qwen3Config
from tts_core.qwen3.model import qwen3
from tts_core.text.byte_bpe import byte_signs

KEYS = Path(__file__).parents[2] / "tests/data/keys"
FORMS = {
    "dia": ("safetensors", "pth"),
    "mars5": ("safetensors", "pt"),
    "metavoice": ("pt",),
    "dia2": ("1b", "2b"),
    "qwen3": ("0.6b_base", "0.6b_custom_voice", "1.7b_base", "1.7b_custom_voice"),
}

DIA_CONFIG = {
    "version": "0.1",
    "training": {},
    "data": {
        "text_length": 1024,
        "audio_length": 3072,
        "channels": 9,
        "text_pad_value": 0,
        "audio_eos_value": 1024,
        "audio_pad_value": 1025,
        "audio_bos_value": 1026,
        "delay_pattern": [0, 8, 9, 10, 11, 12, 13, 14, 15],
    },
    "model": {
        "dropout": 0.0,
        "normalization_layer_epsilon": 1e-5,
        "rope_min_timescale": 1,
        "rope_max_timescale": 10000,
        "src_vocab_size": 256,
        "tgt_vocab_size": 1028,
        "encoder": {"n_layer": 12, "n_embd": 1024, "n_hidden": 4096, "n_head": 16, "head_dim": 128},
        "decoder": {
            **{"n_layer": 18, "n_embd": 2048, "n_hidden": 8192},
            **{"gqa_query_heads": 16, "kv_heads": 4, "gqa_head_dim": 128},
            **{"cross_query_heads": 16, "cross_head_dim": 128},
        },
    },
}
DAC_CONFIG = {
    "model_type": "dac",
    "sampling_rate": 44100,
    "encoder_hidden_size": 64,
    "downsampling_ratios": [2, 4, 8, 8],
    "decoder_hidden_size": 1536,
    "n_codebooks": 9,
    "codebook_size": 1024,
    "codebook_dim": 8,
}
MIMI_CONFIG = {
    **{"model_type": "mimi", "sampling_rate": 24000, "frame_rate": 12.5, "audio_channels": 1},
    **{"hidden_size": 512, "num_filters": 64, "num_residual_layers": 1, "dilation_growth_rate": 2},
    **{"kernel_size": 7, "last_kernel_size": 3, "residual_kernel_size": 3, "compress": 2},
    **{"num_hidden_layers": 8, "intermediate_size": 2048, "num_attention_heads": 8, "head_dim": 64},
    **{"num_key_value_heads": 8, "norm_eps": 1e-5, "rope_theta": 10000.0, "sliding_window": 250},
    **{"codebook_size": 2048, "codebook_dim": 256, "vector_quantization_hidden_dimension": 256},
    **{"num_quantizers": 32, "num_semantic_quantizers": 1, "upsample_groups": 512, "normalize": False},
    **{"use_causal_conv": True, "use_conv_shortcut": False, "pad_mode": "constant", "trim_right_ratio": 1.0},
    **{"hidden_act": "gelu", "attention_bias": False, "upsampling_ratios": [8, 6, 5, 4]},
}
VOCOS_CONFIG = """feature_extractor:
  class_path: vocos.feature_extractors.EncodecFeatures
  init_args: {encodec_model: encodec_24khz, bandwidths: [1.5, 3.0, 6.0, 12.0], train_codebooks: false}
backbone:
  class_path: vocos.models.VocosBackbone
  init_args: {input_channels: 128, dim: 384, intermediate_dim: 1152, num_layers: 8, adanorm_num_embeddings: 4}
head:
  class_path: vocos.heads.ISTFTHead
  init_args: {dim: 384, n_fft: 1280, hop_length: 320, padding: same}
"""
GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
FIRST_STAGE = {
    **{"n_layer": 24, "n_head": 16, "n_embd": 2048, "block_size": 2048, "bias": False},
    **{"vocab_sizes": [2562], "dropout": 0.0, "causal": True, "norm_type": "rmsnorm"},
    **{"rmsnorm_eps": 1e-5, "nonlinearity_type": "swiglu", "spk_emb_on_text": True},
    **{"attn_kernel_type": "torch_attn", "swiglu_multiple_of": 256, "spkemb_dropout": 0.1},
}
SECOND_STAGE = {
    **{"n_layer": 6, "n_head": 6, "n_embd": 384, "block_size": 1024, "bias": False},
    **{"vocab_sizes": [1538, 1025], "target_vocab_sizes": [1025] * 6, "dropout": 0.0, "causal": False},
    **{"norm_type": "layernorm", "nonlinearity_type": "gelu", "spk_emb_on_text": True},
}


def make_checkpoint(folder: Path, model: str, form: str) -> Path:
    """Write a published folder with its codec (and vocoder) in subfolders. Returns the largest file."""
    folder.mkdir(parents=True)
    if model == "dia":
        return _make_dia(folder, form)
    if model == "dia2":
        return _make_dia2(folder, form)
    if model == "qwen3":
        return _make_qwen3(folder, form)
    (folder / "vocos").mkdir()
    (folder / "vocos/config.yaml").write_text(VOCOS_CONFIG)
    _pickle(folder / "vocos/pytorch_model.bin", "vocos_charactr")
    (folder / "encodec").mkdir()
    _pickle(folder / "encodec/encodec_24khz-d7cc33bc.th", "encodec_facebook")
    return _make_mars5(folder, form) if model == "mars5" else _make_metavoice(folder)


def _make_dia(folder: Path, form: str) -> Path:
    """Write Dia in nari's names and layout in one file, and DAC in transformers' form; float32."""
    (folder / "codec").mkdir()
    (folder / "config.json").write_text(json.dumps(DIA_CONFIG))
    (folder / "codec/config.json").write_text(json.dumps(DAC_CONFIG))
    write_random(folder / "codec/model.safetensors", "dac_transformers")
    if form == "pth":
        return _pickle(folder / "dia-v0_1.pth", "dia_nari")
    return write_random(folder / "model.safetensors", "dia_nari")


def _make_dia2(folder: Path, form: str) -> Path:
    """Write a Dia2 of one of its sizes with its tokenizer's form, and Mimi in transformers' form; float32."""
    config = {"1b": DIA2_1B, "2b": DIA2_2B}[form]
    (folder / "codec").mkdir()
    (folder / "config.json").write_text(json.dumps(dia2_config(config)))
    (folder / "tokenizer.json").write_text(MODELS["dia2"].speed.documents({})["dia2"]["tokenizer.json"])
    (folder / "tokenizer_config.json").write_text("{}")
    (folder / "codec/config.json").write_text(json.dumps(MIMI_CONFIG))
    write_random(folder / "codec/model.safetensors", "mimi_transformers")
    return write_random(folder / "model.safetensors", f"dia2_{form}")


def dia2_config(config: Dia2Config) -> dict[str, Any]:
    """Write the sizes of a Dia2 as its published config.json."""

    def stack(config_of: Dia2StackConfig) -> dict[str, int]:
        return {
            "n_layer": config_of.num_hidden_layers,
            "n_embd": config_of.hidden_size,
            "n_hidden": config_of.intermediate_size,
            "gqa_query_heads": config_of.num_attention_heads,
            "kv_heads": config_of.num_key_value_heads,
            "gqa_head_dim": config_of.head_dim,
        }

    return {
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
            "action_pad_token_id": 0,
            "action_new_word_token_id": 1,
            "delay_pattern": list(config.delay_pattern),
            "first_word_min_start": 0,
            "max_pad": 0,
            "second_stream_ahead": config.second_stream_ahead,
        },
        "model": {
            "decoder": {**stack(config.transformer), "low_rank_dim": None},
            "depformer": {**stack(config.depformer), "apply_rope": True, "text_embedding": False},
            "linear": {},
            "rope_min_timescale": config.rope_min_timescale,
            "rope_max_timescale": config.rope_max_timescale,
            "normalization_layer_epsilon": config.norm_eps,
        },
        "runtime": {
            "weights_schedule": list(config.weights_schedule),
            "max_context_steps": config.max_context_steps,
        },
    }


def _make_qwen3(folder: Path, form: str) -> Path:
    """Write a Qwen3-TTS of one of its sizes in bfloat16, with a small tokenizer; the codec in float32."""
    size, _, mode = form.partition("_")
    config = qwen3({"0.6b": "0b6", "1.7b": "1b7"}[size], mode)
    write_qwen3_texts(folder, config, QWEN3_CODEC_12HZ)
    write_random(folder / "speech_tokenizer/model.safetensors", "qwen3_codec")
    return write_random(folder / "model.safetensors", f"qwen3_{form}", code="BF16")


def write_qwen3_texts(folder: Path, config: Qwen3Config, codec: Qwen3CodecConfig) -> None:
    """Write everything but weights: both config.json, a tokenizer of single bytes, settings of draws."""
    (folder / "speech_tokenizer").mkdir(parents=True)
    added = {"<|im_start|>": config.im_start_id, "<|im_end|>": config.im_end_id}
    texts = {
        "config.json": qwen3_config(config),
        "speech_tokenizer/config.json": qwen3_codec_config(codec),
        "vocab.json": {sign: index for index, sign in enumerate(byte_signs())},
        "tokenizer_config.json": {
            "added_tokens_decoder": {str(id): {"content": token} for token, id in added.items()}
        },
        "generation_config.json": {"do_sample": True, "temperature": 0.9, "max_new_tokens": 8192},
    }
    for name, content in texts.items():
        (folder / name).write_text(json.dumps(content))
    (folder / "merges.txt").write_text("#version: 0.2\n")


def qwen3_config(config: Qwen3Config) -> dict[str, Any]:
    """Write the sizes and ids of a Qwen3-TTS as its published config.json."""
    whole = asdict(config)
    shared = {"num_code_groups": config.n_codebooks, "hidden_act": "silu", "attention_bias": False}
    talker = {name: whole[name] for name in ("vocab_size", "text_vocab_size", "text_hidden_size")}
    talker |= {name: id for name, id in whole.items() if name.startswith("codec_") and name != "codec_eos_id"}
    voices, encoder = config.speakers, whole["speaker_encoder"]
    return {
        "model_type": "qwen3_tts",
        "tokenizer_type": "qwen3_tts_tokenizer_12hz",
        "tts_model_size": config.model_size,
        "tts_model_type": config.mode,
        **{f"{name}_token_id": whole[f"{name}_id"] for name in ("im_start", "im_end")},
        **{f"tts_{name}_token_id": whole[f"tts_{name}_id"] for name in ("pad", "bos", "eos")},
        "talker_config": {
            **whole["talker"],
            **shared,
            **talker,
            "codec_eos_token_id": config.codec_eos_id,
            "max_position_embeddings": config.max_positions,
            "code_predictor_config": {**whole["predictor"], **shared, "vocab_size": config.codebook_size},
            "codec_language_id": dict(config.languages),
            "spk_id": {voice.name: voice.id for voice in voices},
            "spk_is_dialect": {voice.name: voice.dialect or False for voice in voices},
        },
        **({} if encoder is None else {"speaker_encoder_config": encoder}),
    }


def qwen3_codec_config(config: Qwen3CodecConfig) -> dict[str, Any]:
    """Write the sizes of a Qwen3-TTS's codec as its published config.json."""
    decoder = asdict(config.decoder)
    decoder["num_quantizers"] = decoder.pop("n_codebooks")
    encoder = MIMI_CONFIG | asdict(config.encoder) | {"sliding_window": 250}
    encoder["num_quantizers"] = encoder.pop("n_codebooks") + config.n_unread
    encoder["num_semantic_quantizers"] = encoder.pop("n_semantic")
    encoder["sampling_rate"] = encoder.pop("sample_rate")
    encoder["frame_rate"] = config.sample_rate / config.hop_length
    encoder["vector_quantization_hidden_dimension"] = config.encoder.codebook_dim
    encoder["upsample_groups"] = config.encoder.hidden_size
    return {
        "model_type": "qwen3_tts_tokenizer_12hz",
        "encoder_valid_num_quantizers": config.n_codebooks,
        "input_sample_rate": config.sample_rate,
        "output_sample_rate": config.sample_rate,
        "encode_downsample_rate": config.hop_length,
        "decode_upsample_rate": config.hop_length,
        "encoder_config": encoder,
        "decoder_config": decoder,
    }


def _make_mars5(folder: Path, form: str) -> Path:
    """Write both networks in float16, with the tokenizers in each file."""
    texts = {
        "texttok.model": _merges(256, 1792, ["<|startoftext|>", "<|endoftext|>"]),
        "speechtok.model": _merges(1024, 5120, ["<|startofspeech|>", "<|endofspeech|>"]),
    }
    made = []
    for network, name in (("ar", "ar-3000000"), ("nar", "nar-1980000")):
        path = folder / f"mars5_en_checkpoints_{name}.{form}"
        if form == "pt":
            made.append(_pickle(path, f"mars5_{network}", {"vocab": texts}, inside="model", code="F16"))
        else:
            made.append(write_random(path, f"mars5_{network}", code="F16", metadata=texts))
    return made[0]


def _make_metavoice(folder: Path) -> Path:
    """Write all parts in float32; the first stage's head shares its embedding's storage."""
    for name, args, offset in (("second", SECOND_STAGE, 1025), ("first", FIRST_STAGE, 2049)):
        table: dict[bytes, int] = {bytes([byte]): byte for byte in range(256)}
        table |= {bytes([rank // 16 + 97, rank % 16 + 97]): 256 + rank for rank in range(256)}
        tokenizer = {"name": "custom", "pat_str": GPT2_PATTERN, "mergeable_ranks": table, "offset": offset}
        tokenizer["special_tokens"] = {"<|endoftext|>": 512}
        meta = {"speaker_cond": True, "speaker_emb_size": 256, "tokenizer": tokenizer}
        more = {"model_args": args, "config": {"causal": args["causal"]}, "meta": meta}
        tied = {"lm_heads.0.weight": "transformer.wtes.0.weight"} if name == "first" else {}
        keys = f"metavoice_{name}_stage"
        largest = _pickle(folder / f"{name}_stage.pt", keys, more, inside="model", tied=tied)
    _pickle(
        folder / "speaker_encoder.pt",
        "metavoice_speaker_encoder",
        {"step": 1_564_501, "optimizer_state": {"state": {}, "param_groups": []}},
        inside="model_state",
    )
    return largest


def add_diffusion(folder: Path) -> Path:
    """Add mbd_comp_8.pt to MetaVoice's files: float32 tensors, settings as pickled OmegaConf objects."""
    path = folder / "mbd_comp_8.pt"
    weights = write_random(path.with_suffix(".tmp.safetensors"), "multi_band_diffusion")
    subprocess.run([sys.executable, "-c", DIFFUSION, weights, path], check=True, cwd=KEYS.parents[2])
    weights.unlink()
    return path


DIFFUSION = """
import sys
from pathlib import Path
from safetensors.torch import load_file
from tests.tiny.mbd import published_cfg, write_published
from tts_core.codecs.mbd import PUBLISHED_UNET, MbdBandConfig, MbdProcessorConfig, MbdScheduleConfig

schedule = MbdScheduleConfig(1e-5, 2.9e-2, 7.5, 1000, 5.0, 1.0)
powers = {2: 0.4, 3: 0.75}
content = {"sample_rate": 24000, "n_bands": 4}
for b in range(4):
    processor = MbdProcessorConfig(8, (powers[b],) * 8) if b in powers else None
    cfg = published_cfg(MbdBandConfig(PUBLISHED_UNET, schedule, processor), 24000)
    content[b] = {"cfg": cfg, "model_state": {}, "processor_state": {}}
for name, tensor in load_file(sys.argv[1]).items():
    b, part, rest = name.split(".", 2)
    content[int(b)][part][rest] = tensor
write_published(Path(sys.argv[2]), content)
"""


def write_random(
    path: Path,
    keys: str,
    *,
    code: str = "F32",
    metadata: dict[str, str] | None = None,
    skip: Iterable[str] = (),
) -> Path:
    """Write random tensors of the shapes in a key list to a safetensors file; norms' gains are near 1."""
    shapes = json.loads((KEYS / f"{keys}.json").read_text())
    shapes = {name: shape for name, shape in shapes.items() if name not in skip}
    rng = np.random.default_rng(0)
    entries = [TensorEntry(name, code, tuple(shape)) for name, shape in shapes.items()]
    writer = SafetensorsWriter(path, entries, metadata)
    for name, shape in shapes.items():
        values = rng.standard_normal(shape, np.float32) * np.float32(0.02)
        values += np.float32(len(shape) == 1 and name.endswith("weight"))
        writer.write(name, narrow(values, code))
    writer.close()
    return path


def _pickle(
    path: Path,
    keys: str,
    more: dict[str, Any] | None = None,
    *,
    inside: str | None = None,
    code: str = "F32",
    tied: dict[str, str] | None = None,
) -> Path:
    """Write random tensors with torch.save, in a process of its own.

    tied: names that share another tensor's storage, with its name.
    more: other entries of the saved dict; the tensors are then its entry `inside`.
    """
    weights = write_random(path.with_suffix(".tmp.safetensors"), keys, code=code, skip=tied or ())
    script = (
        "import sys, torch, safetensors.torch as s; from ast import literal_eval as read\n"
        "state = s.load_file(sys.argv[1]); more, inside, tied = map(read, sys.argv[3:])\n"
        "state |= {name: state[owner] for name, owner in tied.items()}\n"
        "torch.save({inside: state, **more} if inside else state, sys.argv[2])"
    )
    settings = [repr(item) for item in (more or {}, inside, tied or {})]
    subprocess.run([sys.executable, "-c", script, weights, path, *settings], check=True)
    weights.unlink()
    return path


def _merges(base: int, count: int, specials: list[str]) -> str:
    """Build a tokenizer file with `count` merges of neighboring ids."""
    lines = ["minbpe v1", r"\p{L}+|\p{N}+|\s+", str(len(specials))]
    lines += [f"{name} {base + count + i}" for i, name in enumerate(specials)]
    return "\n".join([*lines, *(f"{i} {i + 1}" for i in range(count))]) + "\n"
