"""Facts about Qwen3-TTS: its networks, its published repositories and its defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from tts_core.codecs.qwen3_codec import QWEN3_CODEC_12HZ, Qwen3CodecConfig
from tts_core.config import config_of
from tts_core.errors import CheckpointError
from tts_core.files.json_object import parse_json
from tts_core.models import DEPTH, ROWS_ONLY, Code, Configs, Documents, Model, Network, Speed, Wide
from tts_core.qwen3.config import (
    BASE,
    CUSTOM_VOICE,
    SUPPRESSED,
    VOICE_DESIGN,
    Qwen3Config,
    Qwen3StackConfig,
    Speaker,
    is_large,
    mlx_axes,
    parameter_shapes,
    read_converted,
    stays_float32,
)
from tts_core.qwen3.layout import GENERATION, read_generation
from tts_core.qwen3.options import Qwen3Options
from tts_core.qwen3.speaker import DEFAULT
from tts_core.qwen3.tokenizer import FILES, byte_tokenizer, shared_tokenizer

REPOSITORIES = {  # on the hub → size, mode
    "Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice": ("0b6", CUSTOM_VOICE),
    "Qwen/Qwen3-TTS-12Hz-0.6B-Base": ("0b6", BASE),
    "Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice": ("1b7", CUSTOM_VOICE),
    "Qwen/Qwen3-TTS-12Hz-1.7B-Base": ("1b7", BASE),
    "Qwen/Qwen3-TTS-12Hz-1.7B-VoiceDesign": ("1b7", VOICE_DESIGN),
}
REPOSITORY = next(iter(REPOSITORIES))
LANGUAGES = ("zh", "en", "ja", "ko", "de", "fr", "ru", "pt", "es", "it")
# Widths follow from the lengths of the published files; the other numbers and ids are those that several
# ports state, and a published config.json is read for all of them
_WIDTHS = {"0b6": (1024, 3072), "1b7": (2048, 6144)}
_LANGUAGES = {
    "english": 2050,
    "german": 2053,
    "spanish": 2054,
    "chinese": 2055,
    "japanese": 2058,
    "french": 2061,
    "sichuan_dialect": 2062,
    "korean": 2064,
    "russian": 2069,
    "italian": 2070,
    "portuguese": 2071,
    "beijing_dialect": 2074,
}
_SPEAKERS = {
    "aiden": 2861,
    "sohee": 2864,
    "ono_anna": 2873,
    "eric": 2875,
    "dylan": 2878,
    "uncle_fu": 3010,
    "ryan": 3061,
    "vivian": 3065,
    "serena": 3066,
}
_DIALECTS = {"eric": "sichuan_dialect", "dylan": "beijing_dialect"}


def qwen3(size: str, mode: str) -> Qwen3Config:
    """Build the sizes and ids of a published model. size, mode: as in REPOSITORIES."""
    width, inner = _WIDTHS[size]
    speakers = [Speaker(name, id, _DIALECTS.get(name)) for name, id in _SPEAKERS.items()]
    return Qwen3Config(
        talker=Qwen3StackConfig(width, inner, 28, 16, 8, 128, 1e6, 1e-6),
        predictor=Qwen3StackConfig(1024, 3072, 5, 16, 8, 128, 1e6, 1e-6),
        vocab_size=3072,
        codebook_size=2048,
        n_codebooks=16,
        text_vocab_size=151936,
        text_hidden_size=2048,
        max_positions=32768,
        mode=mode,
        model_size=size,
        im_start_id=151644,
        im_end_id=151645,
        tts_pad_id=151671,
        tts_bos_id=151672,
        tts_eos_id=151673,
        codec_pad_id=2148,
        codec_bos_id=2149,
        codec_eos_id=2150,
        codec_think_id=2154,
        codec_nothink_id=2155,
        codec_think_bos_id=2156,
        codec_think_eos_id=2157,
        languages=tuple(_LANGUAGES.items()),
        speakers=tuple(speakers) if mode == CUSTOM_VOICE else (),
        speaker_encoder=replace(DEFAULT, enc_dim=width) if mode == BASE else None,
    )


def check(configs: Configs, documents: Documents) -> None:
    """Raise CheckpointError unless the codec has the model's codes, and the tokenizer its ids."""
    config = config_of(configs, "qwen3", Qwen3Config)
    codec = config_of(configs, "qwen3_codec", Qwen3CodecConfig)
    sizes = {config.vocab_size - SUPPRESSED, config.codebook_size}
    if config.n_codebooks != codec.n_codebooks or sizes != {codec.codebook_size}:
        raise CheckpointError(
            f"codec: {codec.n_codebooks} codebooks of {codec.codebook_size} codes, the model has "
            f"{config.n_codebooks} of {' and '.join(map(str, sorted(sizes)))}; use the codec of its release"
        )
    own = documents["qwen3"]
    tokenizer = shared_tokenizer(*(own[name] for name in FILES), config.text_vocab_size)
    for token, id in (("<|im_start|>", config.im_start_id), ("<|im_end|>", config.im_end_id)):
        if tokenizer.added.get(token) != id:
            raise CheckpointError(
                f"tokenizer: {token} is {tokenizer.added.get(token)}, the model has {id}; "
                "use the files of its release"
            )
    read_generation(parse_json(own[GENERATION], GENERATION))


def varies(config: Qwen3Config) -> dict[str, Any]:
    """Return the facts that depend on the checkpoint's mode: whose voice it speaks in."""
    is_base = config.mode == BASE
    return {
        "title": f"Qwen3-TTS {config.mode.title().replace('_', '')}",
        "needs_voice": is_base,
        "needs_instruction": config.mode == VOICE_DESIGN,
        "references": 1 if is_base else 0,
        "transcript": "optional" if is_base else "unused",
        "voices": tuple(dict.fromkeys(speaker.name.lower() for speaker in config.speakers)),
    }


def defaults(config: Qwen3Config, documents: Mapping[str, str]) -> SimpleNamespace | None:
    """Return the checkpoint's own settings, by the names of options."""
    if GENERATION not in documents:
        return None
    own = read_generation(parse_json(documents[GENERATION], GENERATION))
    found: dict[str, float] = {"repetition_penalty": own.repetition_penalty}
    for prefix, choice in (("", own.first), ("subtalker_", own.others)):
        found |= {f"{prefix}{name}": getattr(choice, name) for name in ("temperature", "top_k", "top_p")}
    return SimpleNamespace(**found)


def _layers(configs: Configs) -> int:
    """Count the calls of layers in a frame: the predictor's run once for each code."""
    config = config_of(configs, "qwen3", Qwen3Config)
    return config.talker.num_hidden_layers + config.n_codebooks * config.predictor.num_hidden_layers


def _reads(name: str) -> bool:
    """Exclude tables that are read by rows, and the speaker encoder.

    The predictor's weights count once; where no cache holds them, a frame reads them for every stage again.
    """
    return not ("_embedding." in name or name.startswith("speaker_encoder."))


def _documents(configs: Configs) -> Documents:
    config = config_of(configs, "qwen3", Qwen3Config)
    files = byte_tokenizer({config.im_start_id: "<|im_start|>", config.im_end_id: "<|im_end|>"})
    return {"qwen3": {**files, GENERATION: "{}"}, "qwen3_codec": {}}


def _options(configs: Configs) -> dict[str, str]:
    """Name what the checkpoint's mode needs."""
    config = config_of(configs, "qwen3", Qwen3Config)
    if config.mode == VOICE_DESIGN:
        return {"instruct": "A calm voice."}
    return {"voice": config.speakers[0].name} if config.speakers else {}


def code() -> Code:
    """Import the functions."""
    from tts_core.qwen3.footprint import PLAN
    from tts_core.qwen3.probes import probes
    from tts_core.qwen3.request import Qwen3Facts
    from tts_core.qwen3.speech import speak

    return Code(Qwen3Facts.of, speak, PLAN, probes)


MODEL = Model(
    name="qwen3",
    title="Qwen3-TTS",
    options=Qwen3Options,
    code=code,
    networks={
        "qwen3": Network(
            title="Qwen3-TTS",
            folder="",
            network="qwen3.qwen3:Qwen3",
            parameter_shapes=parameter_shapes,
            read_converted=read_converted,
            stays_float32=stays_float32,
            is_large=is_large,
            wide=(
                Wide("embeddings", r"_embedding\.", ROWS_ONLY),
                Wide("code predictor", r"\.code_predictor\.(?!model\.codec_embedding)", DEPTH),
                Wide("text projection", r"\.text_projection\.", "it reads the text once, not each frame"),
                Wide("speaker encoder", r"^speaker_encoder\.", "it reads a recording once, in float32"),
            ),
            mlx_axes=mlx_axes,
            documents=(*FILES, GENERATION),
            optional_documents=("preprocessor_config.json",),
            published_type="qwen3_tts",
            repository=REPOSITORY,
            license="apache-2.0",
        )
    },
    parts=("qwen3", "qwen3_codec"),
    check=check,
    sizes={
        repository: {"qwen3": qwen3(*facts), "qwen3_codec": QWEN3_CODEC_12HZ}
        for repository, facts in REPOSITORIES.items()
    },
    published_dtype="bfloat16",
    on_mps=("float32", "its codes in half precision have not been compared there"),
    references=1,
    transcript="optional",
    fed=True,
    example='--text "Hello there." --voice vivian',
    languages=LANGUAGES,
    varies=varies,
    defaults=defaults,
    speed=Speed(
        stages=("prompt", "speech"),
        unit="frame",
        frame_rate=lambda configs: config_of(configs, "qwen3_codec", Qwen3CodecConfig).frame_rate,
        layers=_layers,
        reads=_reads,
        text="The quick brown fox jumps over the lazy dog near the river bank.",
        documents=_documents,
        options=_options,
    ),
)
