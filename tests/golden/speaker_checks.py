"""Checks of speaker.json and speaker.safetensors: front end, slices, vectors, and a file from disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.golden.cases import Vectors, existing
from tests.golden.metavoice_audio_bench import AudioBench, audio_bench, near
from tests.tiny.metavoice import read_speaker
from tts_core.audio.files import read_audio
from tts_core.audio.mel import mel_filters, mel_power, periodic_hann
from tts_core.audio.silence import sounding
from tts_core.audio.speaker_slices import (
    HOP_LENGTH,
    SAMPLE_RATE,
    SLICE_FRAMES,
    TRIM_DB,
    padded_length,
    slice_starts,
    utterance_mel,
    utterance_slices,
)

VECTOR, MEL, FILTER = 1e-5, 1e-5, 1e-6  # of the vectors' README; mel relative
RESAMPLED = 1e-5  # the same library; its builds round differently


def check_speaker(folder: Path, side: str) -> None:
    """Every tensor and every entry of the slice tables, on one side."""
    vectors = Vectors(folder / "speaker.safetensors")
    about = json.loads(existing(folder / "speaker.json").read_text())
    bench = audio_bench(side, folder)
    config = bench.side.encoder.config
    assert (about["hidden"], about["emb"]) == (config.hidden_size, config.speaker_embedding_size)
    _check_tables(vectors, about)
    for row in about["slice_table"]:
        check_slices(row)
    for i, case in enumerate(about["cases"]):
        _check_case(f"case{i}", case, vectors, bench)
    _check_file(folder, vectors, about, bench)
    several = [vectors[name] for name in about["settings"]["multi.embedding"]["waves"]]
    bench.close("multi.embedding", vectors["multi.embedding"], lambda s: s.encoder.embed(several), VECTOR)
    vectors.assert_all_read()


def check_slices(row: dict[str, Any]) -> None:
    """Compare frames, and samples in rows that have them."""
    starts = slice_starts(row["n_samples"])
    frames = [[start, start + SLICE_FRAMES] for start in starts]
    assert frames == row["mel_slices"], f"slices of {row['n_samples']} samples: {frames}"
    samples = [[a * HOP_LENGTH, b * HOP_LENGTH] for a, b in frames]
    assert samples == row.get("wav_slices", samples), f"slices of {row['n_samples']} samples: {samples}"


def _check_tables(vectors: Vectors, about: dict[str, Any]) -> None:
    bank, window = about["settings"]["mel_filterbank"], about["settings"]["window"]
    filters = mel_filters(bank["sample_rate"], bank["n_fft"], bank["n_mels"])
    near("mel_filterbank", filters, vectors["mel_filterbank"], FILTER * float(filters.max()))
    assert (window["kind"], window["periodic"]) == ("hann", True)
    near("window", periodic_hann(window["n"]), vectors["window"], FILTER)


def _check_case(at: str, case: dict[str, Any], vectors: Vectors, bench: AudioBench) -> None:
    wave, n_mels = vectors[f"{at}.wav"], bench.side.encoder.config.n_mels
    assert len(wave) == case["n_samples"], f"{at}.wav"
    check_slices(case)
    mel = vectors[f"{at}.mel"]
    relatively_near(f"{at}.mel", utterance_mel(wave, n_mels), mel)
    padded = np.pad(wave, (0, padded_length(len(wave)) - len(wave)))
    relatively_near(
        f"{at}.mel", mel_power(padded, SAMPLE_RATE, n_fft=400, hop_length=HOP_LENGTH, n_mels=n_mels), mel
    )
    slices = vectors[f"{at}.mels"]
    relatively_near(f"{at}.mels", utterance_slices(wave, n_mels), slices)
    bench.close(
        f"{at}.partials", vectors[f"{at}.partials"], lambda s: s.numpy(s.encoder(s.array(slices))), VECTOR
    )
    bench.close(f"{at}.embedding", vectors[f"{at}.embedding"], lambda s: s.encoder.embed([wave]), VECTOR)


def _check_file(folder: Path, vectors: Vectors, about: dict[str, Any], bench: AudioBench) -> None:
    settings = about["settings"]["file"]
    path = existing(folder / settings["wav"])
    assert settings["trim"] == {"top_db": TRIM_DB, "frame": 2048, "hop": 512}
    resampled, trimmed = vectors["file.resampled"], vectors["file.trimmed"]
    near("file.resampled", read_audio(path, SAMPLE_RATE, quality="HQ"), resampled, RESAMPLED)
    start, stop = sounding(resampled, settings["trim"]["top_db"])
    assert [start, stop] == about["file"]["trim_index"]
    np.testing.assert_array_equal(resampled[start:stop], trimmed, "file.trimmed")
    near("file.trimmed", read_speaker(path), trimmed, RESAMPLED)
    bench.close("file.embedding", vectors["file.embedding"], lambda s: s.encoder.embed([trimmed]), VECTOR)


def relatively_near(what: str, own: np.ndarray, golden: np.ndarray) -> None:
    """Require a relative error of at most 1e-5 in each number."""
    assert own.dtype == golden.dtype == np.float32, what
    np.testing.assert_allclose(own, golden, rtol=MEL, atol=0, err_msg=what)
