"""The judges against their original code, with the published weights, on ten recordings.

Needs the originals, without what they need for other work:
    pip install --no-deps --target ORIGINALS distillmos xls_r_sqa speechmos Resemblyzer silero-vad librosa ...
    PYTHONPATH=ORIGINALS python -m pytest THIS_FILE
"""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from tts_core.audio.files import read_audio
from tts_core.judges import wheels
from tts_core.judges.distillmos import DistillMos
from tts_core.judges.dnsmos import DnsMos
from tts_core.judges.likeness import VoiceEncoder
from tts_core.judges.voicing import VoiceActivity

pytestmark = pytest.mark.rest

SOUNDS = Path(__file__).parents[3] / "docs" / "use"
EPS = float(np.finfo(np.float32).eps)


@pytest.fixture(scope="module")
def recordings() -> list[np.ndarray]:
    """Both voices: as they are, quiet, noisy, one after the other, with a pause, and noise alone."""
    rng = np.random.default_rng(0)
    one, two = (read_audio(SOUNDS / f"{name}.wav", 16000) for name in ("slt", "rms"))
    noise = rng.normal(0, 0.02, max(len(one), len(two))).astype(np.float32)
    pause = np.zeros(12000, np.float32)
    made = [one, two, one * 0.05, two * 0.3, one + noise[: len(one)], two + noise[: len(two)]]
    made += [np.concatenate([one, two, one]), np.concatenate([two, pause, one]), one[8000:24000], noise]
    return [np.clip(sound, -1, 1).astype(np.float32) for sound in made]


@pytest.fixture(autouse=True)
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules that the originals import and do not use here."""
    for name in ("torchaudio", "webrtcvad"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    morphology: Any = ModuleType("scipy.ndimage.morphology")
    morphology.binary_dilation = None
    monkeypatch.setitem(sys.modules, "scipy.ndimage.morphology", morphology)


def original(name: str) -> Any:
    return pytest.importorskip(name, reason=f"{name} is not installed")


def weights(which: wheels.Weights) -> bytes:
    """The file inside the original's package."""
    paths = (Path(folder) / which.member for folder in sys.path)
    return next(path.read_bytes() for path in paths if path.is_file())


def test_distillmos(recordings: list[np.ndarray]) -> None:
    theirs = original("distillmos").ConvTransformerSQAModel().eval()
    ours = DistillMos(weights(wheels.DISTILLMOS))
    for sound in recordings:
        single = _mos(theirs.float(), sound, torch.float32)
        exact = _mos(theirs.double(), sound, torch.float64)
        assert abs(ours.score(sound) - exact) <= 16 * abs(single - exact) + 4 * EPS * 5


def _mos(network: Any, sound: np.ndarray, dtype: torch.dtype) -> float:
    torch.set_default_dtype(dtype)  # of its window
    try:
        with torch.no_grad():
            return network(torch.from_numpy(sound).to(dtype)[None]).item()
    finally:
        torch.set_default_dtype(torch.float32)


def test_dnsmos(recordings: list[np.ndarray]) -> None:
    theirs, ours = original("speechmos.dnsmos"), DnsMos(weights(wheels.DNSMOS))
    for sound in recordings:
        wanted = theirs.run(sound, 16000)
        found = ours.score(sound)
        for name, score in zip(("sig_mos", "bak_mos", "ovrl_mos"), found, strict=True):
            assert score == pytest.approx(float(wanted[name]), abs=4 * EPS * 5)


def test_resemblyzer(recordings: list[np.ndarray]) -> None:
    theirs = original("resemblyzer").VoiceEncoder("cpu", verbose=False)
    ours = VoiceEncoder(weights(wheels.RESEMBLYZER))
    for sound in recordings:
        # unit vectors of 256 numbers, from 160 steps of three layers
        np.testing.assert_allclose(ours.embed_whole(sound), theirs.embed_utterance(sound), atol=16 * EPS)


def test_silero(recordings: list[np.ndarray]) -> None:
    theirs = original("silero_vad").load_silero_vad(onnx=True)
    ours = VoiceActivity(weights(wheels.SILERO))
    for sound in recordings:
        wanted = theirs.audio_forward(torch.from_numpy(sound)[None], 16000)[0].numpy()
        np.testing.assert_array_equal(ours.probabilities(sound), wanted)
