"""Facts about MARS5 for `mlx-port bench`."""

from __future__ import annotations

from tts_core.codecs.encodec import EncodecConfig
from tts_core.config import Configs, config_of
from tts_core.mars5.config import CodecLMConfig, ResidualTransformerConfig
from tts_core.mars5.tokens import (
    BYTES,
    CODES,
    END_OF_SPEECH,
    END_OF_TEXT,
    SPEECH_FILE,
    START_OF_TEXT,
    TEXT_FILE,
)
from tts_core.models import Documents
from tts_core.speed import Speed

START_OF_SPEECH = "<|startofspeech|>"


def _documents(configs: Configs) -> Documents:
    ids = config_of(configs, "mars5", CodecLMConfig).vocab_size
    text = config_of(configs, "mars5_nar", ResidualTransformerConfig).text_rows - 1
    tables = {
        TEXT_FILE: _table(BYTES, text, (START_OF_TEXT, END_OF_TEXT)),
        SPEECH_FILE: _table(CODES, ids - text, (START_OF_SPEECH, END_OF_SPEECH)),
    }
    return {"mars5": tables, "mars5_nar": {}, "encodec": {}, "vocos": {}}


def _table(base: int, size: int, specials: tuple[str, ...]) -> str:
    """Build a tokenizer file of `size` ids, whose merges join two base symbols each."""
    merges = size - base - len(specials)
    lines = ["minbpe v1", "", str(len(specials))]
    lines += [f"{name} {base + merges + place}" for place, name in enumerate(specials)]
    lines += [f"{merge // base} {merge % base}" for merge in range(merges)]
    return "\n".join(lines) + "\n"


SPEED = Speed(
    stages=("AR",),
    unit="id",
    steps_per_frame=1,
    frame_rate=lambda configs: config_of(configs, "encodec", EncodecConfig).frame_rate,
    layers=lambda configs: config_of(configs, "mars5", CodecLMConfig).num_hidden_layers,
    reads=lambda name: name.startswith("ar."),
    text="The quick brown fox jumps over the lazy dog near the river bank.",
    documents=_documents,
)
