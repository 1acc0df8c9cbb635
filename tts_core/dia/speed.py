"""Facts about Dia for `mlx-port bench`."""

from __future__ import annotations

from tts_core.codecs.dac import DacConfig
from tts_core.config import config_of
from tts_core.dia.config import DiaConfig
from tts_core.speed import Speed

ONCE = (".cross_attention.k_proj.", ".cross_attention.v_proj.")  # of the text, before the first row


def _reads(name: str) -> bool:
    """Exclude the encoder, and tables of which a row reads only its own entries."""
    decoder = name.startswith(("model.decoder.layers.", "model.decoder.norm", "logits_dense"))
    return decoder and not any(part in name for part in ONCE)


SPEED = Speed(
    stages=("prompt", "speech"),
    unit="row",
    steps_per_frame=1,
    frame_rate=lambda configs: config_of(configs, "dac", DacConfig).frame_rate,
    layers=lambda configs: config_of(configs, "dia", DiaConfig).decoder_config.num_hidden_layers,
    reads=_reads,
    text="[S1] The quick brown fox jumps over the lazy dog near the river bank.",
    documents=lambda configs: {"dia": {}, "dac": {}},
)
