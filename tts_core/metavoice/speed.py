"""Facts about MetaVoice for `mlx-port bench`."""

from __future__ import annotations

import json

from tts_core.config import Configs, config_of
from tts_core.metavoice.config import CODEBOOK_SIZE, END_OF_AUDIO, FIRST_STAGE_BOOKS, FirstStageConfig
from tts_core.metavoice.request import FRAME_RATE
from tts_core.metavoice.text import END_OF_TEXT, PATTERN, TOKENIZER, MetaVoiceTokenizer
from tts_core.models import Documents
from tts_core.speed import Speed


def _reads(name: str) -> bool:
    """Exclude positions, of which a step reads one, and the projection of the speaker's vector."""
    return name != "transformer.wpe.weight" and not name.startswith("speaker_cond_pos")


def _documents(configs: Configs) -> Documents:
    stages = {"metavoice": END_OF_AUDIO + 1, "metavoice_second_stage": CODEBOOK_SIZE + 1}
    tables = {kind: {TOKENIZER: _table(offset)} for kind, offset in stages.items()}
    return {kind: tables.get(kind, {}) for kind in configs}


def _table(offset: int) -> str:
    """Build a tokenizer of single bytes."""
    ranks = {bytes([byte]): byte for byte in range(256)}
    return json.dumps(MetaVoiceTokenizer(PATTERN, ranks, {END_OF_TEXT: 256}, offset).to_dict())


SPEED = Speed(
    stages=("first stage",),
    unit="id",
    steps_per_frame=FIRST_STAGE_BOOKS,
    frame_rate=lambda configs: FRAME_RATE,
    layers=lambda configs: config_of(configs, "metavoice", FirstStageConfig).num_hidden_layers,
    reads=_reads,
    text="The quick brown fox jumps over the lazy dog near the river bank.",
    documents=_documents,
)
