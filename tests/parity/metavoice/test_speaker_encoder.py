"""MetaVoice's speaker encoder, MLX against PyTorch in the derived bound; voices of several recordings."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.sides import SIDES
from tests.tiny.inputs import normal
from tests.tiny.metavoice_audio import AudioSide
from tests.tiny.networks import Weights
from tests.tolerance import assert_within
from tts_core.errors import UsageError
from tts_core.metavoice.config import SpeakerEncoderConfig, speaker_encoder_parameter_shapes

SPEAKER = SpeakerEncoderConfig(n_mels=11, hidden_size=10, num_hidden_layers=3, speaker_embedding_size=7)


def speaker_tensors() -> dict[str, np.ndarray]:
    random = np.random.default_rng(3)
    shapes = speaker_encoder_parameter_shapes(SPEAKER)
    return {name: random.normal(0, 0.4, shape).astype(np.float32) for name, shape in shapes.items()}


AUDIO = {kind: AudioSide(kind, lambda _: Weights(SPEAKER, speaker_tensors())) for kind in (*SIDES, "float64")}


def assert_parity(what: str, run: Callable[[AudioSide], np.ndarray]) -> None:
    assert_within(run(AUDIO["mlx"]), run(AUDIO["torch"]), run(AUDIO["float64"]), what)


def test_speakers_of_several_recordings(monkeypatch: pytest.MonkeyPatch) -> None:
    """More slices than one batch; the mean of two recordings' vectors, normalized again."""
    for kind in SIDES:
        monkeypatch.setattr(f"{AUDIO[kind].package}.metavoice.speaker_encoder.SLICES_AT_ONCE", 2)
    long, short = normal(31, 80_000), normal(32, 5_000)
    assert_parity("one", lambda side: side.encoder.embed([long]))
    assert_parity("both", lambda side: side.encoder.embed([long, short]))

    def mean(kind: str) -> np.ndarray:
        one, other = (AUDIO[kind].encoder.embed([each]) for each in (long, short))
        return (one + other) / np.linalg.norm(one + other)

    for kind in SIDES:
        both = AUDIO[kind].encoder.embed([long, short])
        assert_within(both, mean("torch"), mean("float64"), f"{kind}: mean")


@pytest.mark.parametrize("kind", SIDES)
def test_no_voice_is_an_error(kind: str) -> None:
    """If no unit of the last layer is active, the vector has no direction."""
    tensors = speaker_tensors()
    tensors["linear.bias"] = np.full_like(tensors["linear.bias"], -100)
    side = AudioSide(kind, lambda network: Weights(SPEAKER, tensors))
    with pytest.raises(UsageError, match="no recognizable voice"):
        side.encoder.embed([normal(33, 3000)])
    with pytest.raises(UsageError, match="no recording"):
        side.encoder.embed([])
