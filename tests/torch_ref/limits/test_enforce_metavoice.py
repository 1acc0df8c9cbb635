"""MetaVoice in torch from text and voice to speech, under the rules of MPS and with the dtypes of a T4."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import torch_ref
from tests.tiny.metavoice_pipeline import Ending, reference, write_model
from tests.torch_ref.limits.stand_ins import stand_ins
from tests.torch_ref.metavoice.test_precision import Refused
from torch_ref import device as policy
from torch_ref.limits import Backend, enforce
from tts_core.audio.voice_cache import VoiceCache
from tts_core.metavoice.decoding import VocosDecoder

pytestmark = pytest.mark.rest

OLDEST, NEWEST = Backend("mps", "2.11.0", "14.5"), Backend("mps", "2.15.0", "27.0")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("metavoice"))


@pytest.fixture(scope="module")
def pipeline(folder: Path) -> Any:
    return torch_ref.MetaVoicePipeline.load(folder, device="cpu")


@pytest.fixture(scope="module")
def voice(pipeline: Any) -> np.ndarray:
    return pipeline.speaker(reference())


def speak(pipeline: Any, voice: Any) -> list[np.ndarray]:
    """Two pieces, guided on speaker and text, decoded by the diffusion, and their codes by Vocos."""
    noise = [Ending(1, 3), Ending(2, 2)]
    asked: dict[str, Any] = {
        "cfg_scale": (2.0, 1.5),
        "top_p": 1.0,
        "decoder": "mbd",
        "piece_seconds": 13 / 15,
    }
    made = pipeline.generate("Hello there. It is late.", prompt=voice, noise=noise, **asked)
    return [made.audio, *pipeline.engine.decoders["vocos"].decode([made.codes], noise)]


@pytest.fixture(scope="module")
def plain(pipeline: Any, voice: np.ndarray) -> list[np.ndarray]:
    made = speak(pipeline, voice)
    assert all(len(audio) for audio in made)
    return made


@pytest.mark.parametrize("backend", stand_ins("with LSTM"), ids=str)
def test_no_rule_is_broken_and_the_speech_stays(
    pipeline: Any, voice: np.ndarray, plain: list[np.ndarray], backend: Backend
) -> None:
    with enforce(backend) as watch:
        limited = speak(pipeline, voice)
    assert watch.calls > 200
    for one, other in zip(limited, plain, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-4)


@pytest.mark.parametrize("backend", [OLDEST, NEWEST], ids=str)
def test_nor_where_a_voice_is_read(pipeline: Any, voice: np.ndarray, backend: Backend) -> None:
    fresh = VoiceCache()
    with enforce(backend):
        found = fresh.encoded(
            [np.resize(np.asarray(reference(2.0).one.audio), 20_000)], pipeline.engine.speaker_encoder.embed
        )
    assert found.shape == voice.shape


def on_a_gpu(monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int]) -> torch.dtype:
    """Dtypes of a CUDA device of a compute capability, computed on the CPU."""
    with monkeypatch.context() as made_up:
        made_up.setattr(torch.cuda, "is_available", lambda: True)
        made_up.setattr(torch.cuda, "device_count", lambda: 1)
        made_up.setattr(torch.cuda, "get_device_capability", lambda device=None: capability)
        return policy.choose(None, None, "metavoice").dtype


@pytest.mark.parametrize(("capability", "dtype"), [((7, 5), torch.float16), ((8, 0), torch.bfloat16)])
def test_a_t4_meets_float16_and_no_bfloat16(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], dtype: torch.dtype
) -> None:
    """Loading, voice, both stages and both decoders under a mode that raises on the other half precision."""
    chosen = on_a_gpu(monkeypatch, capability)
    assert chosen == dtype
    other = torch.bfloat16 if dtype == torch.float16 else torch.float16
    with Refused(other) as refused:
        pipeline = torch_ref.MetaVoicePipeline.load(folder, device="cpu", dtype=policy.name_of(chosen))
        made = speak(pipeline, reference(2.0))
    assert refused.seen[chosen] > 100
    assert refused.seen[torch.float32] > 100
    assert all(np.isfinite(audio).all() and len(audio) for audio in made)
    engine, vocos = pipeline.engine, pipeline.engine.decoders["vocos"]
    assert isinstance(vocos, VocosDecoder)
    networks = [engine.second_stage, engine.speaker_encoder, vocos.vocoder]
    assert {tensor.dtype for network in networks for tensor in network.parameters()} == {torch.float32}
    assert {tensor.dtype for tensor in engine.network.parameters()} == {chosen}


def test_the_mode_would_have_raised(folder: Path) -> None:
    pipeline = torch_ref.MetaVoicePipeline.load(folder, device="cpu", dtype="bfloat16")
    vector = np.ones(pipeline.engine.network.config.speaker_embedding_size, np.float32)
    with pytest.raises(AssertionError, match=r"with torch\.bfloat16"), Refused(torch.bfloat16):
        pipeline.generate("So.", prompt=vector, max_frames=1)
