"""MetaVoice's language models under the rules of MPS: no rule is broken, and the ids are those of the CPU."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.tiny.metavoice import (
    first_stage_config,
    first_stage_weights,
    second_stage_config,
    second_stage_weights,
    tokenizers,
)
from tests.tiny.metavoice_lm import LanguageSide
from tests.torch_ref.limits.stand_ins import stand_ins
from torch_ref.limits import Backend, enforce
from torch_ref.metavoice.codes import fill_codebooks
from torch_ref.metavoice.first_stage import FirstStage
from torch_ref.metavoice.second_stage import SecondStage
from tts_core.metavoice.rows import MetaVoiceJoining
from tts_core.metavoice.sampling import FirstStageSampling
from tts_core.metavoice.spec import METAVOICE_FIRST_STAGE, METAVOICE_SECOND_STAGE
from tts_core.nn.noise import HostNoise

pytestmark = pytest.mark.rest

VERSIONS = (("2.11.0", "14.5"), ("2.12.1", "15.0"), ("2.13.0", "15.2"), ("2.15.0", "27.0"))
SETTINGS = {
    "fast": FirstStageSampling(top_k=100),
    "slow": FirstStageSampling(2.0, 1.5, rule="slow"),
    "greedy": FirstStageSampling(1.0, top_p=None, top_k=1),
}


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("backend", [Backend("mps", *versions) for versions in VERSIONS], ids=str)
def test_metavoice_speaks(backend: Backend, name: str) -> None:
    side = LanguageSide("torch")
    first = side.first_stage(first_stage_weights(first_stage_config()))
    second = side.second_stage(second_stage_weights(second_stage_config()))
    tables, random = tokenizers(), np.random.default_rng(0)
    speakers = random.normal(0, 1, (2, 10)).astype(np.float32)
    codes = random.integers(0, 1024, (2, 6)).astype(np.int32)
    text = tables.second_stage.encode("Hello.")

    def run() -> list[np.ndarray]:
        texts = [
            MetaVoiceJoining(tables.first_stage.encode(words), vector, SETTINGS[name], HostNoise(seed))
            for words, vector, seed in zip(("Hello.", "a"), speakers, (1, 2), strict=True)
        ]
        made = side.speak(first, texts, [5, 7], end_of_text=tables.first_stage.end_of_text)
        fills = fill_codebooks, side.fill_codebooks_as_upstream
        return [*made, *[fill(second, text, codes, speakers[0], HostNoise(3)) for fill in fills]]

    plain = run()
    with enforce(backend):
        limited = run()
    for one, other in zip(limited, plain, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("backend", stand_ins("without LSTM"), ids=str)
def test_full_size(backend: Backend) -> None:
    """Shapes of one layer: a text, rows after it, a step after the longest sequence, the whole window."""
    with torch.device("meta"):
        first = FirstStage(replace(METAVOICE_FIRST_STAGE, num_hidden_layers=1))
        second = SecondStage(replace(METAVOICE_SECOND_STAGE, num_hidden_layers=1))
        heard = first.speakers(torch.zeros(2, 256))
        with enforce(backend):
            cache = first.new_cache(2048)
            assert first.next_logits(torch.zeros(2, 200, dtype=torch.int32), heard, cache).shape == (2, 2562)
            first.next_logits(torch.zeros(2, 1847, dtype=torch.int32), heard, cache)
            assert first.next_logits(torch.zeros(2, 1, dtype=torch.int32), heard, cache).shape == (2, 2562)
            logits = second(torch.zeros(1, 2, 1024, dtype=torch.int32), torch.zeros(1, 256))
            assert logits.shape == (1, 6, 1024, 1025)
