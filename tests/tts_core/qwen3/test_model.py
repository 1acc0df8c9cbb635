"""Facts of Qwen3-TTS's published checkpoints, from their configurations on the hub, and of its modes."""

import pytest

from tts_core.qwen3.config import BASE, CUSTOM_VOICE, VOICE_DESIGN
from tts_core.qwen3.model import qwen3, varies

IDS = {
    "im_start": 151644, "im_end": 151645, "tts_pad": 151671, "tts_bos": 151672, "tts_eos": 151673,
    "codec_pad": 2148, "codec_bos": 2149, "codec_eos": 2150,
    "codec_think": 2154, "codec_nothink": 2155, "codec_think_bos": 2156, "codec_think_eos": 2157,
}  # fmt: skip


@pytest.mark.parametrize("size", ["0b6", "1b7"])
def test_special_ids_are_the_published_ones(size: str) -> None:
    config = qwen3(size, BASE)
    assert {name: getattr(config, f"{name}_id") for name in IDS} == IDS


@pytest.mark.parametrize(
    ("mode", "transcript"), [(BASE, "optional"), (CUSTOM_VOICE, "unused"), (VOICE_DESIGN, "unused")]
)
def test_only_a_base_may_have_a_transcript(mode: str, transcript: str) -> None:
    facts = varies(qwen3("0b6", mode))
    assert facts["transcript"] == transcript
    assert (facts["needs_voice"], facts["references"]) == (mode == BASE, int(mode == BASE))
