"""Checks of mbd.json and mbd.safetensors: tables and loudness, which need no weights, and the networks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from converters.files.pickles import TorchCheckpoint
from tests.golden.cases import Vectors, existing
from tests.golden.metavoice_audio_bench import AudioBench, audio_bench, near
from tests.tiny.metavoice_audio import AudioSide, Rows
from tts_core.audio.bands import band_edges, lowpass_filters
from tts_core.audio.loudness import QUIETEST, TARGET, integrated_loudness, normalize_loudness
from tts_core.codecs import mbd_schedule
from tts_core.codecs.mbd import MbdScheduleConfig, band_parameter_shapes

# of the vectors' README
UNET, RUN, WAVE, FILTER, LOUD, LKFS = 1e-4, 2e-3, 1e-3, 1e-6, 1e-4, 1e-3
EPS = float(np.finfo(np.float32).eps)


def check_tables(folder: Path, stem: str) -> None:
    """Check schedule, filters and loudness, the only contents of STEM.json and STEM.safetensors."""
    vectors, about = read(folder, stem)
    compare_tables(vectors, about)
    vectors.assert_all_read()


def check_mbd(folder: Path, side: str) -> None:
    """Check all of mbd.json and mbd.safetensors on one side."""
    vectors, about = read(folder, "mbd")
    compare_tables(vectors, about)
    bench = audio_bench(side, folder)
    _check_sizes(about, bench.side)
    _check_filters(folder, bench.side)
    _check_latent(folder, vectors)
    _check_unet(vectors, about, bench)
    _check_bands(vectors, about, bench)
    _check_decode(vectors, about, bench)
    vectors.assert_all_read()


def read(folder: Path, stem: str) -> tuple[Vectors, dict[str, Any]]:
    return Vectors(folder / f"{stem}.safetensors"), json.loads(existing(folder / f"{stem}.json").read_text())


def compare_tables(vectors: Vectors, about: dict[str, Any]) -> None:
    """Compare the tables that NumPy computes for both sides."""
    settings = about["settings"]
    config = MbdScheduleConfig(
        **{field.name: about["schedule"][field.name] for field in fields(MbdScheduleConfig)}
    )
    betas, steps = vectors["schedule.betas"], about["step_list"]
    assert mbd_schedule.default_steps(config) == steps
    # upstream's power of 7.5 multiplies the roundings of its float32 grid
    np.testing.assert_allclose(mbd_schedule.betas(config), betas, rtol=8 * config.beta_exp * EPS, atol=0)
    bars = mbd_schedule.alpha_bars(config)
    products = float(config.num_steps) ** 0.5 * EPS  # one rounding per factor
    for name in ("alpha_bar_at_steps", "alpha_bar_prod_at_steps"):
        np.testing.assert_allclose(bars[steps], vectors[f"schedule.{name}"], rtol=4 * products, atol=0)
    ascending = bars[steps[::-1]]
    rebuilt = 1 - ascending / np.concatenate([[1.0], ascending[:-1]])
    near("schedule.betas_subsampled", rebuilt, vectors["schedule.betas_subsampled"], 4 * products)

    rate = settings["filters"]["sample_rate"]
    for n in (4, 8, 32):
        stated, kept = about[f"split{n}"], settings["filters"][f"split{n}"]
        assert kept["n_bands"] == n
        np.testing.assert_allclose(band_edges(n, rate), stated["cutoffs_hz"], rtol=8 * EPS * n, atol=0)
        filters = lowpass_filters(n, rate)
        assert filters.shape[1] == 2 * stated["half_size"] + 1
        name = f"split{n}.filters_first_last" if "rows" in kept else f"split{n}.filters"
        near(name, filters[kept["rows"]] if "rows" in kept else filters, vectors[name], FILTER)
    _check_loudness(vectors, about)


def _check_loudness(vectors: Vectors, about: dict[str, Any]) -> None:
    settings, (wave,) = about["settings"]["loud"], vectors["loud.in"]
    rate = settings["sample_rate"]
    assert (settings["target_lkfs"], settings["tanh"], settings["rms_floor"]) == (TARGET, True, QUIETEST)
    assert abs(integrated_loudness(wave, rate) - about["loud_lkfs_in"]) <= LKFS
    near("loud.out", normalize_loudness(wave, rate)[None], vectors["loud.out"], LOUD)
    if about["loud_rms_below_2e-3_left_unchanged"]:
        quiet = (wave * (1e-3 / np.sqrt(np.mean(wave.astype(np.float64) ** 2)))).astype(np.float32)
        np.testing.assert_array_equal(normalize_loudness(quiet, rate), quiet)


def _check_sizes(about: dict[str, Any], side: AudioSide) -> None:
    """Compare names and sizes with those in the JSON file."""
    config = side.diffusion.config
    first = band_parameter_shapes(replace(config.bands[0], processor=None))
    assert {name.removeprefix("unet."): list(shape) for name, shape in first.items()} == about["model_keys"]
    for name, value in about["unet"].items():
        assert getattr(config.bands[0].unet, name, value) == value, name
    for b, (band, power) in enumerate(zip(config.bands, about["processor_power"], strict=True)):
        keys = about["processor_keys"][b]
        assert (band.processor is None) == (power is None) == (not keys), f"band {b}: processor"
        if band.processor:
            assert band.processor.n_bands == keys["sum_x"][0]
            assert band.processor.power_std == tuple(np.broadcast_to(power, band.processor.n_bands).tolist())


def _check_filters(folder: Path, side: AudioSide) -> None:
    """Compare the stored filters of the processors with ours; loading does not read them."""
    config = side.diffusion.config
    checkpoint = TorchCheckpoint(folder / "mbd_comp_8.pt")
    for b, band in enumerate(config.bands):
        if band.processor:
            stored = checkpoint.read(f"{b}.processor_state.split_bands.lowpass.filters")[:, 0]
            near(
                f"band {b}: filters",
                lowpass_filters(band.processor.n_bands, config.sample_rate),
                stored,
                FILTER,
            )


def _check_latent(folder: Path, vectors: Vectors) -> None:
    """The sum of the codes' vectors."""
    tables = load_file(existing(folder / "encodec.safetensors"))
    codes, latent = vectors["codes"], vectors["latent"]
    rows = [tables[f"quantizer.layers.{q}.codebook.embed"][codes[:, q]] for q in range(codes.shape[1])]
    near("latent", np.sum(rows, axis=0).swapaxes(1, 2), latent, 16 * EPS * float(np.abs(latent).max()))


def _check_unet(vectors: Vectors, about: dict[str, Any], bench: AudioBench) -> None:
    latent, settings = vectors["latent"], about["settings"]["unet"]
    band, x = settings["band"], vectors[settings["input"]]
    for step in settings["steps"]:
        name = f"unet.out{step}"
        bench.close(name, vectors[name], lambda s, t=step: s.unet(band, x, t, latent), UNET)
    odd = about["settings"]["unet.out_odd"]
    few, uneven = latent[..., : odd["condition_frames"]], vectors[odd["input"]]

    def run(s: AudioSide) -> np.ndarray:
        return s.unet(odd["band"], uneven, odd["step"], few)

    bench.close("unet.out_odd", vectors["unet.out_odd"], run, UNET)
    effect = about["settings"]["condition_effect"]
    x, step, side = vectors[effect["input"]], effect["step"], bench.side
    deaf = side.unet(effect["band"], x, step, np.zeros_like(latent))
    change = np.abs(side.unet(effect["band"], x, step, latent) - deaf).max()
    near("condition_effect", change, np.array(about["condition_effect"]), 2 * UNET)


def _check_bands(vectors: Vectors, about: dict[str, Any], bench: AudioBench) -> None:
    """Splitting, matching, the processor."""
    rate, settings = about["settings"]["filters"]["sample_rate"], about["settings"]
    split = settings["split8.bands"]
    wave = vectors[split["input"]][0, 0]
    bench.follow(
        "split8.bands", vectors["split8.bands"], lambda s: s.split(wave, split["n_bands"], rate), UNET
    )
    for name in ("eq.out", "eq.out_half"):
        how = settings[name]
        wave, reference = vectors[how["wav"]][0, 0], vectors[how["reference"]][0, 0]
        match = lambda s, w=wave, r=reference, how=how: s.match(w, r, rate, how)[None, None]  # noqa: E731
        bench.close(name, vectors[name], match, WAVE)
    x, band = vectors["processor.in"], settings["processor"]["band"]
    bench.close("processor.out", vectors["processor.out"], lambda s: s.process(band, x[0])[None], UNET)


def _check_decode(vectors: Vectors, about: dict[str, Any], bench: AudioBench) -> None:
    """A band's trace, all bands, their sum, the wave; and the sum of a run of fewer steps."""
    latent, wave, settings = vectors["latent"], vectors["codec_wav"][0], about["settings"]
    schedules = [band.schedule for band in bench.side.diffusion.config.bands]
    full, short = settings["decode"], settings["decode5"]
    assert (full["step_list"], short["step_list"]) == (about["step_list"], about["step_list5"])
    trace, noise = full["trace"], vectors["decode.noise"]
    moves = mbd_schedule.transitions(schedules[trace["band"]], full["step_list"])
    rows = full["noise_rows_per_band"]
    draws = noise[trace["band"] * rows :]
    inputs, estimates = vectors["decode.band0_inputs"], vectors["decode.band0_estimates"]
    for i, (call, step) in enumerate(zip(trace["calls"], trace["steps"], strict=True)):
        assert moves[call].step == step
        seen = lambda s, c=call: s.sample(trace["band"], latent, moves[:c], draws)  # noqa: E731
        bench.follow(f"decode.band0_inputs[{i}]", inputs[i], seen, RUN)
        given = inputs[i][None, None]
        answer = lambda s, g=given, t=step: s.unet(trace["band"], g, t, latent)[0, 0]  # noqa: E731
        bench.close(f"decode.band0_estimates[{i}]", estimates[i], answer, UNET)

    def bands(s: AudioSide, steps: Sequence[int], noise: np.ndarray) -> np.ndarray:
        count, parts = len(steps) - 1, []
        for b, schedule in enumerate(schedules):
            plan = mbd_schedule.transitions(schedule, steps)
            parts.append(s.process(b, s.sample(b, latent, plan, noise[b * count :])[None])[0])
        return np.stack(parts)

    bench.follow("decode.bands", vectors["decode.bands"], lambda s: bands(s, full["step_list"], noise), RUN)
    near("decode.sum", vectors["decode.bands"].sum(axis=0)[None], vectors["decode.sum"], 16 * EPS * 20)
    few = vectors["decode5.noise"]
    assert len(few) == len(schedules) * short["noise_rows_per_band"]
    bench.follow(
        "decode5.sum",
        vectors["decode5.sum"],
        lambda s: bands(s, short["step_list"], few).sum(axis=0)[None, None],
        RUN,
    )

    def decode(s: AudioSide) -> np.ndarray:
        source = Rows(noise)
        (out,) = s.diffusion.decode([latent[0]], [wave[0]], [source], steps=full["step_list"])
        assert source.taken == set(range(len(noise))), "recorded draws that nothing asked for"
        return s.numpy(out)[None, None]

    assert full["eq"] == {"n_bands": 32, "strictness": 1.0, "reference": "codec_wav"}
    bench.follow("decode.wav", vectors["decode.wav"], decode, WAVE)
