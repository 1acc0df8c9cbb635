"""Our folders of Qwen3-TTS load in mlx-audio strictly and speak the same.

Runs where mlx-audio is installed: pip install mlx-audio==0.6.2.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from converters.convert import convert
from converters.published import open_published
from converters.rules.dequantize import Quantization
from tests.golden.cases import Case, discover
from tests.tolerance import EPS

CASES = [case for case in discover("mlx_community") if "qwen3" in case.kind]
FRAMES = 24  # fewer than the codec's window, which mlx-audio leaves out
ROUNDING = 500 * EPS  # of sound in [-1, 1]; mlx-audio convolves in another order


@pytest.mark.parametrize("bits", [None, 8])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_converted_folder_loads_and_speaks_there(tmp_path: Path, case: Case, bits: int | None) -> None:
    pytest.importorskip("mlx_audio", reason="mlx-audio is not installed")
    from mlx_audio.tts.utils import load_model  # pyright: ignore[reportMissingImports]

    import mlx_port

    how = None if bits is None else Quantization("affine", 64, bits)
    convert(open_published(case.folder, offline=True), tmp_path / "plain", dtype="float32")
    source = open_published(tmp_path / "plain", offline=True)
    convert(source, tmp_path / "made", quantization=how)
    theirs: Any = load_model(tmp_path / "made", strict=True)
    assert theirs.tokenizer is not None
    assert theirs.speech_tokenizer is not None
    if not source.parts["qwen3"].config.speakers:
        return  # a recording's spectrogram differs there
    voice = source.parts["qwen3"].config.speakers[0].name
    drawn = _codes(theirs)
    [spoken] = theirs.generate_custom_voice(
        "Hello there.", voice, language="english", temperature=0.0, max_tokens=FRAMES, repetition_penalty=1.0
    )
    ours = mlx_port.load(tmp_path / "made").generate(
        "Hello there.",
        voice=voice,
        language="english",
        temperature=0,
        subtalker_temperature=0,
        repetition_penalty=1.0,
        max_frames=FRAMES,
        layout="whole",
    )
    np.testing.assert_array_equal(np.array(drawn[0])[0].T, ours.codes)
    audio = np.array(spoken.audio)
    np.testing.assert_allclose(ours.audio[: len(audio)], audio, rtol=0, atol=ROUNDING)


def _codes(model: Any) -> list[Any]:
    """Keep the codes that a model of mlx-audio decodes, (1, T, Q) each."""
    kept, decode = [], model.speech_tokenizer.decode
    model.speech_tokenizer.decode = lambda codes: (kept.append(codes), decode(codes))[1]
    return kept
