"""The picture of the embedded voice, on tones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from examples.train_voice.picture import EDGE, SPECTRUM, WAVE, WIDTH, colored, draw, spectrogram, waveform

pytestmark = pytest.mark.rest

RATE = 16000


def tone(hertz: float, seconds: float = 1.0) -> np.ndarray:
    return np.sin(2 * np.pi * hertz * np.arange(int(RATE * seconds)) / RATE).astype(np.float32)


@pytest.mark.parametrize("hertz", [1000, 6000])
def test_a_tone_is_a_line_at_its_frequency(hertz: int) -> None:
    shades = spectrogram(tone(hertz), 50, 200)
    assert shades.shape == (200, 50)
    brightest = 200 - 1 - shades[:, 5:-5].argmax(0)
    assert np.abs(brightest / 200 * 8000 - hertz).max() <= 40
    assert shades.min() == 0
    assert shades.max() == 1


def test_a_waveform_fills_what_it_passes() -> None:
    drawn = waveform(np.concatenate([np.zeros(8000), tone(500, 0.5)]), 100, 21)
    assert drawn[:, :45].sum(0).max() <= 2
    assert (drawn[:, 55:] == 1).all()


def test_colours_are_few() -> None:
    shown = colored(np.linspace(0, 1, 5000)[None])
    assert len(np.unique(shown.reshape(-1, 3), axis=0)) <= 48
    assert shown[0, -1].sum() > shown[0, 0].sum()


def test_a_picture_of_two(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    draw({"slt": tone(200), "rms": tone(100, 0.5)}, RATE, tmp_path / "voice.png")
    with image.open(tmp_path / "voice.png") as made:
        assert made.size == (EDGE + WIDTH, 2 * (WAVE + SPECTRUM + EDGE))
        pixels = np.asarray(made.convert("RGB")).astype(int)
    second = pixels[WAVE + SPECTRUM + EDGE :]
    assert (second[: WAVE + SPECTRUM, EDGE + WIDTH // 2 + 8 :] > 250).all(), "half as long, half as wide"
    assert (pixels[WAVE : WAVE + SPECTRUM, EDGE:] < 250).any(axis=2).mean() > 0.9
