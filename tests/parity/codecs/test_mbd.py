"""Multi-band diffusion part by part, MLX against PyTorch in the derived bound; batches and seeds."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.sides import SIDES
from tests.tiny.inputs import normal
from tests.tiny.mbd import CONFIG
from tests.tiny.metavoice_audio import AudioSide
from tests.tiny.networks import Weights, tiny
from tests.tolerance import EPS, assert_within
from tts_core.audio.bands import lowpass_filters
from tts_core.codecs.mbd_schedule import Transition, default_steps, transitions
from tts_core.errors import UsageError
from tts_core.nn.noise import HostNoise

KINDS = (*SIDES, "float64")


AUDIO = {
    kind: AudioSide(kind, lambda _: Weights(CONFIG, tiny("mbd").tensors)) for kind in (*SIDES, "float64")
}


def assert_parity(what: str, run: Callable[[AudioSide], np.ndarray]) -> None:
    assert_within(run(AUDIO["mlx"]), run(AUDIO["torch"]), run(AUDIO["float64"]), what)


BANDS = pytest.mark.parametrize("band", [0, 1])


@BANDS
@pytest.mark.parametrize(("length", "frames"), [(64, 1), (193, 3), (300, 9)])
def test_unet(band: int, length: int, frames: int) -> None:
    x, latent = normal(5, 2, 1, length), normal(6, 2, CONFIG.codec_dim, frames)
    for step in (0, 119):
        assert_parity(f"step {step}", lambda side, t=step: side.unet(band, x, t, latent))


@BANDS
def test_the_condition_is_heard_at_every_frame(band: int) -> None:
    """The condition is added to the last skip: each of its frames changes the estimate, on both sides."""
    x, latent = normal(7, 1, 1, 600), normal(8, 1, CONFIG.codec_dim, 8)
    for kind in SIDES:
        plain = AUDIO[kind].unet(band, x, 60, latent)
        for frame in range(8):
            other = latent.copy()
            other[..., frame] += 1
            assert np.abs(AUDIO[kind].unet(band, x, 60, other) - plain).max() > 1e-3


def direct_split(x: np.ndarray, n_bands: int, sample_rate: int) -> np.ndarray:
    """By the definition, in float64. (L,) → (n_bands, L)."""
    filters = lowpass_filters(n_bands, sample_rate)
    padded = np.pad(x.astype(np.float64), filters.shape[1] // 2, mode="edge")
    low = np.stack([np.convolve(padded, taps, "valid") for taps in filters])
    return np.diff(np.concatenate([np.zeros((1, len(x))), low, x[None]]), axis=0)


def of_bands(n_bands: int, x: np.ndarray) -> float:
    """Rounding of the sum of bands, whose filters cancel: each band and each sum is rounded once."""
    return 2 * n_bands * EPS * float(np.abs(x).max())


@pytest.mark.parametrize("n_bands", [2, 3, 8])
@pytest.mark.parametrize("length", [1, 63, 64, 65, 200])
def test_bands_are_split_by_the_definition(
    n_bands: int, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AUDIO["mlx"].band_split, "WINDOW", 64)
    x = normal(length, length) + 3
    truth = direct_split(x, n_bands, 2400)
    np.testing.assert_allclose(AUDIO["float64"].split(x, n_bands, 2400), truth, rtol=0, atol=1e-12)
    known = AUDIO["torch"].split(x, n_bands, 2400)
    for kind in SIDES:
        found = AUDIO[kind].split(x, n_bands, 2400)
        assert_within(found, known, truth, f"{kind}: {n_bands} bands")
        np.testing.assert_allclose(found.sum(axis=0), x, rtol=0, atol=of_bands(n_bands, x))


@pytest.mark.parametrize("strictness", [1.0, 0.5])
@pytest.mark.parametrize("length", [50, 1023, 1024, 2500])
def test_levels_are_matched_band_by_band(strictness: float, length: int) -> None:
    wave, reference = normal(1, length) * 0.3, normal(2, length + 9).cumsum() * 0.01
    how = {"n_bands": 4, "strictness": strictness}
    assert_parity("matched", lambda side: side.match(wave, reference.astype(np.float32), 2400, how))
    if strictness == 1:
        bands, wanted = direct_split(wave, 4, 2400), direct_split(reference.astype(np.float32), 4, 2400)
        gains = wanted.std(axis=1, ddof=1) / bands.std(axis=1, ddof=1)
        truth = (gains[:, None] * bands).sum(axis=0)
        found = AUDIO["float64"].match(wave, reference.astype(np.float32), 2400, how)
        np.testing.assert_allclose(found, truth, rtol=0, atol=1e-12 * np.abs(truth).max())


def test_matching_changes_nothing_when_told_so_and_leaves_silence_silent() -> None:
    wave, silent = normal(3, 300), np.zeros(300, np.float32)
    for kind in SIDES:
        side = AUDIO[kind]
        kept = side.match(wave, normal(4, 300), 2400, {"n_bands": 4, "strictness": 0.0})
        np.testing.assert_allclose(kept, wave, rtol=0, atol=of_bands(4, wave))
        for reference in (silent, wave):
            found = side.match(silent, reference, 2400, {"n_bands": 4, "strictness": 1.0})
            np.testing.assert_array_equal(found, silent)


def test_processor() -> None:
    assert_parity("processor", lambda side: side.process(1, normal(9, 2, 500)))
    x = normal(10, 1, 70)
    for kind in SIDES:
        np.testing.assert_array_equal(AUDIO[kind].process(0, x), x)


def processed(bands: np.ndarray, sums: dict[str, np.ndarray], power: tuple[float, ...]) -> np.ndarray:
    """A processor's formula, in the dtype of `bands`. (n_bands, L) → (L,)."""
    mean, mean_square, target = (sums[name] / sums["counts"] for name in ("sum_x", "sum_x2", "sum_target_x2"))
    gain = (np.sqrt(np.maximum(mean_square - mean**2, 0)) / target) ** np.array(power, bands.dtype)
    return (bands * gain[:, None] + mean[:, None]).sum(axis=0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_variance_of_a_processor_is_at_least_zero(kind: str) -> None:
    """Sums of a nearly constant sub-band may give a variance slightly below 0: the gain is 0, not NaN."""
    values = {"counts": [4], "sum_x": [1.25, -2, 0.5], "sum_x2": [0.375, 5, 2], "sum_target_x2": [2, 8, 3]}
    sums = {name: np.array(each, np.float32) for name, each in values.items()}  # all of them exact
    variances = sums["sum_x2"] / 4 - (sums["sum_x"] / 4) ** 2
    assert -0.01 < variances[0] < 0 < variances[1:].min()
    side = AudioSide(
        kind,
        lambda network: Weights(
            CONFIG, tiny("mbd").tensors | {f"bands.1.processor.{name}": each for name, each in sums.items()}
        ),
    )
    x, processor = normal(12, 300), CONFIG.bands[1].processor
    assert processor is not None
    sizes = processor.n_bands, CONFIG.sample_rate
    wide = {name: each.astype(np.float64) for name, each in sums.items()}
    truth = processed(direct_split(x, *sizes), wide, processor.power_std)
    found = side.process(1, x[None])[0]
    if kind == "float64":
        np.testing.assert_allclose(found, truth, rtol=0, atol=1e-12)
    else:
        known = processed(AUDIO["torch"].split(x, *sizes), sums, processor.power_std)
        assert_within(found, known, truth, "processor")


LATENTS = [normal(20, CONFIG.codec_dim, 4), normal(21, CONFIG.codec_dim, 7)]
WAVES = [normal(22, 333) * 0.2, normal(23, 500) * 0.2]


def decode(side: AudioSide, chosen: list[int], steps: list[int] | None = None) -> list[np.ndarray]:
    """Items by number, each with noise of its own."""
    out = side.diffusion.decode(
        [LATENTS[i] for i in chosen], [WAVES[i] for i in chosen], [HostNoise(i) for i in chosen], steps=steps
    )
    return [side.numpy(each) for each in out]


@BANDS
def test_sampling(band: int) -> None:
    """A whole run of a band, fresh noise at every transition but the last."""
    schedule = CONFIG.bands[band].schedule
    moves = transitions(schedule, default_steps(schedule))
    draws = normal(11, len(moves), 211)
    assert_parity("sample", lambda side: side.sample(band, LATENTS[0][None], moves, draws))


@pytest.mark.parametrize("kind", KINDS)
def test_sampling_by_the_formula(kind: str) -> None:
    """Scaled noise; each transition subtracts the estimate, adds fresh noise and clips."""
    schedule = replace(CONFIG.bands[0].schedule, noise_scale=0.7, clip=1.5)
    config = replace(CONFIG, bands=(replace(CONFIG.bands[0], schedule=schedule), CONFIG.bands[1]))
    moves = [
        Transition(90, 1.25, 0.5, 0.75),
        Transition(40, 1.5, 0.25, 0.5),
        Transition(7, 1.0625, 0.125, 0.0),
    ]
    draws, latent = normal(13, 3, 160), LATENTS[0][None]

    def expected(by: str, dtype: type) -> np.ndarray:
        x = draws[:1] * dtype(schedule.noise_scale)
        for i, move in enumerate(moves, 1):
            estimate = AUDIO[by].unet(0, x[None].astype(dtype), move.step, latent)[0]
            x = (x - dtype(move.estimate_scale) * estimate) * dtype(move.x_scale)
            if i < len(moves):
                x = x + dtype(move.fresh_scale) * draws[i : i + 1]
            x = np.clip(x, -1.5, 1.5)
        return x[0]

    truth = expected("float64", np.float64)
    assert 0 < np.mean(np.abs(truth) == 1.5) < 0.5
    found = AudioSide(kind, lambda network: Weights(config, tiny("mbd").tensors)).sample(
        0, latent, moves, draws
    )
    if kind == "float64":
        np.testing.assert_allclose(found, truth, rtol=0, atol=1e-12)
    else:
        assert_within(found, expected("torch", np.float32), truth, "sampling")


def test_decode() -> None:
    for i in (0, 1):
        assert_parity(f"item {i}", lambda side, i=i: decode(side, [i])[0])
    assert_parity("three steps", lambda side: decode(side, [0], [110, 40, 3])[0])


@pytest.mark.parametrize("kind", SIDES)
def test_items_do_not_depend_on_each_other(kind: str) -> None:
    both = decode(AUDIO[kind], [1, 0])
    assert [len(each) for each in both] == [500, 333]
    for one, i in zip(both, (1, 0), strict=True):
        np.testing.assert_array_equal(one, decode(AUDIO[kind], [i])[0])


@pytest.mark.parametrize("kind", SIDES)
def test_seeds(kind: str) -> None:
    """The same seed gives the same sound; another gives another sound at the same level."""
    side = AUDIO[kind]

    def run(seed: int) -> np.ndarray:
        return side.numpy(side.diffusion.decode([LATENTS[0]], [WAVES[0]], [HostNoise(seed)])[0])

    np.testing.assert_array_equal(run(5), run(5))
    assert np.abs(run(5) - run(6)).max() > 0.05
    assert run(6).std() == pytest.approx(WAVES[0].std(), rel=0.5)


@pytest.mark.parametrize("kind", SIDES)
def test_one_band_is_in_memory_at_a_time(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    diffusion = AUDIO[kind].diffusion
    alive: list[weakref.ref] = []
    load = type(diffusion).band

    def watched(self: Any, index: int) -> Any:
        assert [ref for ref in alive if ref() is not None] == []
        band = load(self, index)
        alive.append(weakref.ref(band))
        return band

    monkeypatch.setattr(type(diffusion), "band", watched)
    decode(AUDIO[kind], [0, 1])
    assert len(alive) == len(CONFIG.bands)
    assert all(ref() is None for ref in alive)


@pytest.mark.parametrize("kind", SIDES)
def test_what_does_not_fit_is_told_before_weights_are_read(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    side = AUDIO[kind]
    monkeypatch.setattr(side.diffusion, "band_weights", lambda band: pytest.fail("weights were read"))
    with pytest.raises(UsageError, match="steps: 3, 9"):
        decode(side, [0], [3, 9])
    with pytest.raises(UsageError, match="1 latents, 1 waves and 0 sources"):
        side.diffusion.decode(LATENTS[:1], WAVES[:1], [])
    with pytest.raises(UsageError, match="0 latents"):
        side.diffusion.decode([], [], [])
    with pytest.raises(UsageError, match="steps: : give two or more"):
        decode(side, [0], [])
