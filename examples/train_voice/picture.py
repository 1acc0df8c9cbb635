"""Write a picture and two sound files of the embedded voice for docs/use/voice.md.

    python -m examples.train_voice.picture --out docs/use

Writes voice.png (waveform and spectrogram of both speakers), slt.wav and rms.wav. Needs Pillow.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import torch_ref
from tts_core.audio.files import write_audio
from tts_core.voice.embedded import CODEC, DIA

SENTENCE = "My brother left his keys on the kitchen counter."  # of the evaluation, not trained on
SPEAKERS = {"slt": "[S1]", "rms": "[S2]"}
WIDTH, WAVE, SPECTRUM, EDGE = 900, 70, 200, 40  # pixels
WINDOW = 400  # samples: 25 ms
RANGE = 70  # dB from the darkest to the lightest
SHADES = 48  # few, for a small file
COLORS = ((13, 8, 35), (86, 28, 109), (187, 55, 84), (249, 142, 9), (252, 255, 214))  # dark to light


def spectrogram(samples: np.ndarray, columns: int, rows: int) -> np.ndarray:
    """Compute magnitudes in dB, scaled to 0 to 1, highest frequency first. (L,) → (rows, columns)."""
    padded = np.pad(samples, WINDOW // 2)
    starts = np.linspace(0, len(samples) - 1, columns).astype(int)
    frames = padded[starts[:, None] + np.arange(WINDOW)] * np.hanning(WINDOW)
    loud = 20 * np.log10(np.abs(np.fft.rfft(frames, 2 * rows, axis=1))[:, :rows] + 1e-9)
    return np.clip(1 + (loud.T[::-1] - loud.max()) / RANGE, 0, 1)


def waveform(samples: np.ndarray, columns: int, rows: int) -> np.ndarray:
    """Plot the range of the signal in each column as ones. (L,) → (rows, columns)."""
    pieces = np.array_split(samples / max(float(np.abs(samples).max()), 1e-9), columns)
    low, high = (np.array([edge(piece) for piece in pieces]) for edge in (np.min, np.max))
    height = np.linspace(1, -1, rows)[:, None]
    half = 1 / rows
    return ((height >= low - half) & (height <= high + half)).astype(float)


def colored(shades: np.ndarray) -> np.ndarray:
    """Map shades to colors. (H, W), 0 to 1 → (H, W, 3) uint8."""
    steps = np.round(shades * (SHADES - 1)) / (SHADES - 1) * (len(COLORS) - 1)
    table = np.array(COLORS, float)
    channels = [np.interp(steps, np.arange(len(COLORS)), table[:, channel]) for channel in range(3)]
    return np.stack(channels, axis=-1).astype(np.uint8)


def draw(spoken: dict[str, np.ndarray], sample_rate: int, path: Path) -> None:
    """Draw one panel per speaker, all on the same time scale."""
    from PIL import Image, ImageDraw

    height = WAVE + SPECTRUM + EDGE
    image = Image.new("RGB", (EDGE + WIDTH, height * len(spoken)), "white")
    pen = ImageDraw.Draw(image)
    longest = max(map(len, spoken.values()))
    for index, (name, samples) in enumerate(spoken.items()):
        top, columns = index * height, WIDTH * len(samples) // longest
        wave = np.where(waveform(samples, columns, WAVE)[..., None] > 0, COLORS[1], (255, 255, 255))
        image.paste(Image.fromarray(wave.astype(np.uint8)), (EDGE, top))
        shades = spectrogram(samples, columns, SPECTRUM)
        image.paste(Image.fromarray(colored(shades)), (EDGE, top + WAVE))
        pen.text((4, top + WAVE // 2 - 6), name, fill="black")
        for kilohertz in range(0, sample_rate // 2000 + 1, 2):
            y = top + WAVE + SPECTRUM - SPECTRUM * kilohertz * 2000 // sample_rate
            pen.text((4, y - 11 if kilohertz == 0 else y - 2), f"{kilohertz} kHz", fill="black")
        for tenths in range(0, int(10 * len(samples) / sample_rate) + 1, 5):
            x = EDGE + WIDTH * tenths * sample_rate // (10 * longest)
            pen.line((x, top + WAVE + SPECTRUM, x, top + WAVE + SPECTRUM + 4), fill="black")
            pen.text((x + 2, top + WAVE + SPECTRUM + 4), f"{tenths / 10:.1f} s", fill="black")
    image.quantize(256).save(path, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dia", default=DIA)
    parser.add_argument("--codec", default=CODEC)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    voice = torch_ref.load(given.dia, codec=given.codec, dtype="float32", device="cpu")
    spoken = {
        name: voice.generate(f"{tag} {SENTENCE}", seed=given.seed).audio for name, tag in SPEAKERS.items()
    }
    for name, samples in spoken.items():
        write_audio(given.out / f"{name}.wav", samples, voice.sample_rate)
    draw(spoken, voice.sample_rate, given.out / "voice.png")
    for name in (*(f"{name}.wav" for name in spoken), "voice.png"):
        print(f"{given.out / name}: {(given.out / name).stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
