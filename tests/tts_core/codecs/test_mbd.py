import logging
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.tiny.mbd import CONFIG, FIRST, SCHEDULE, SECOND, published_content
from tts_core.codecs.mbd import (
    PUBLISHED_UNET,
    MbdConfig,
    check_items,
    nearest_frames,
    read_published,
)
from tts_core.codecs.mbd_schedule import alpha_bars, betas, check_steps, default_steps, transitions
from tts_core.errors import CheckpointError, UsageError


def content() -> dict[Any, Any]:
    return deepcopy(published_content(CONFIG, {}))


def test_channels_grow_to_their_limit():
    assert PUBLISHED_UNET.channels == (48, 192, 768, 3072)
    assert FIRST.channels == (4, 8, 12)
    assert SECOND.channels == (6, 15)
    assert (FIRST.padding, SECOND.padding) == (2, 1)


def test_published_settings(caplog):
    with caplog.at_level(logging.INFO, "tts_core"):
        assert read_published(content()) == CONFIG
    assert [record.message.split(" is ")[0] for record in caplog.records] == ["MBD band 0", "MBD band 1"]
    one_power = content()
    one_power[1]["cfg"]["processor"]["power_std"] = 0.4
    (_, band) = read_published(one_power).bands
    assert band.processor is not None
    assert band.processor.power_std == (0.4,) * 3
    older = content()
    del older[0]["cfg"]["diffusion_unet"]["max_channels"]
    assert read_published(older).bands[0].unet.max_channels == 10_000


def test_the_published_size_is_not_logged(caplog):
    full = content()
    for b in (0, 1):
        sizes = {name: getattr(PUBLISHED_UNET, name) for name in PUBLISHED_UNET.__dataclass_fields__}
        full[b]["cfg"]["diffusion_unet"] |= sizes
    with caplog.at_level(logging.INFO, "tts_core"):
        read_published(full)
    assert not caplog.records


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ("diffusion_unet.bilstm", True, "bilstm True, not False"),
        ("diffusion_unet.transformer", True, "transformer True, not False"),
        ("diffusion_unet.emb_all_layers", False, "emb_all_layers False, not True"),
        ("diffusion_unet.attention", 4, "unknown cfg.diffusion_unet.attention"),
        ("diffusion_unet.depth", 10**6, "depth 1000000: expected a whole number from 1 to 1000"),
        ("diffusion_unet.hidden", 5, "5 channels cannot be normalized in 3 groups"),
        ("diffusion_unet.kernel", 4, "kernel 4 and stride 3"),
        ("diffusion_unet", 7, "diffusion_unet 7: expected an object"),
        ("schedule.repartition", "linear", "repartition 'linear', not 'power'"),
        ("schedule.n_bands", 4, "n_bands 4, not None"),
        ("schedule.beta_exp", 0, "beta_exp 0"),
        ("schedule.beta_t1", 1.5, "beta 1e-05 to 1.5"),
        ("schedule.sigma", 1, "unknown cfg.schedule.sigma"),
        ("processor.use", None, "processor.use None, not True"),
        ("processor.name", "other", "name 'other', not 'multi_band_processor'"),
        ("processor.power_std", [0.4], "1 powers for 3 bands"),
        ("processor.power_std", "much", "processor.power_std 'much': power_std"),
        ("processor.offset", 1, "unknown cfg.processor.offset"),
        ("channels", 2, "channels 2, not 1"),
        ("sample_rate", 16000, "sample_rate 16000, not 2400"),
    ],
)
def test_what_is_refused_is_named_with_its_band(place, value, said):
    broken = content()
    *sections, name = place.split(".")
    target = broken[1]["cfg"]
    for section in sections:
        target = target[section]
    target[name] = value
    with pytest.raises(CheckpointError, match=r"(?s).*") as caught:
        read_published(broken)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("section", ["diffusion_unet", "schedule", "processor"])
def test_missing_entries_are_named(section):
    whole = content()
    for name in [
        n for n in whole[1]["cfg"][section] if n in ("hidden", "growth", "clip", "beta_t0", "n_bands", "use")
    ]:
        broken = content()
        del broken[1]["cfg"][section][name]
        if name == "n_bands" and section == "schedule":
            assert read_published(broken) == CONFIG
            continue
        with pytest.raises(CheckpointError, match=f"band 1.*{name}"):
            read_published(broken)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"n_bands": 3}, r"n_bands is 3, the file contains the bands \[0, 1\]"),
        ({"n_bands": None}, "n_bands None"),
        ({"n_bands": 10**9}, "is not a number of bands"),
        ({2: {}}, r"n_bands is 2, the file contains the bands \[0, 1, 2\]"),
        ({1: {"cfg": 5}}, "band 1: cfg 5: expected an object"),
        ({1: 5}, "band 1: expected an object"),
        ({"sample_rate": "24k"}, "sample_rate"),
    ],
)
def test_what_is_wrong_with_the_file_as_a_whole(change, said):
    with pytest.raises(CheckpointError, match=said):
        read_published(content() | change)


def test_bands_need_the_same_latents():
    with pytest.raises(CheckpointError, match=r"different widths \[5, 6\]"):
        replace(CONFIG, bands=(CONFIG.bands[0], replace(CONFIG.bands[1], unet=replace(SECOND, codec_dim=6))))


def test_bands_of_our_own_schema_are_a_list():
    with pytest.raises(CheckpointError, match="bands 3: expected a list"):
        MbdConfig.from_dict(CONFIG.to_dict() | {"bands": 3})


def test_schedule():
    """The last transition ends at the first step, which still has noise, and draws none."""
    bars = alpha_bars(SCHEDULE)
    assert betas(SCHEDULE)[0] == pytest.approx(SCHEDULE.beta_t0, rel=1e-12)
    assert betas(SCHEDULE)[-1] == pytest.approx(SCHEDULE.beta_t1, rel=1e-12)
    assert np.all(np.diff(bars) < 0)
    steps = default_steps(SCHEDULE)
    assert steps == [119, 69, 19, 0]
    first, _, last = transitions(SCHEDULE, steps)
    alpha = bars[119] / bars[69]
    assert first.step == 119
    assert first.x_scale == pytest.approx(alpha**-0.5, rel=1e-12)
    assert first.estimate_scale == pytest.approx((1 - alpha) / (1 - bars[119]) ** 0.5, rel=1e-12)
    variance = (1 - bars[69]) / (1 - bars[119]) * (1 - alpha)
    assert first.fresh_scale == pytest.approx(variance**0.5, rel=1e-12)
    assert (last.step, last.fresh_scale) == (19, 0.0)
    louder = transitions(replace(SCHEDULE, noise_scale=0.5), steps)[0]
    assert louder.estimate_scale == pytest.approx(first.estimate_scale / 2)
    assert louder.fresh_scale == pytest.approx(first.fresh_scale / 2)


def test_default_steps_end_at_the_first_step():
    assert default_steps(replace(SCHEDULE, num_steps=51)) == [50, 0]
    assert default_steps(replace(SCHEDULE, num_steps=1000))[:3] == [999, 949, 899]
    assert len(default_steps(replace(SCHEDULE, num_steps=1000))) == 21


@pytest.mark.parametrize("steps", [[], [5], [5, 5], [1, 2], [120, 0], [5, -1], [9, 3, 4]])
def test_steps_that_do_not_descend(steps):
    with pytest.raises(UsageError, match="give two or more in descending order, from 119 to 0"):
        check_steps(SCHEDULE, steps)


def test_nearest_frames():
    assert nearest_frames(5, 4).tolist() == [0, 0, 1, 2, 3]
    assert nearest_frames(4, 8).tolist() == [0, 2, 4, 6]
    assert nearest_frames(1, 1).tolist() == [0]
    assert nearest_frames(94, 32)[47] == 15  # in float32, as upstream; the exact value is 16
    for length, frames in ((1, 3), (4, 9), (4, 0)):
        with pytest.raises(ValueError, match=f"{frames} frames of latents for {length} steps"):
            nearest_frames(length, frames)


@pytest.mark.parametrize(
    ("latents", "references", "sources", "said"),
    [
        ([(5, 4)], [], 1, "1 latents, 0 waves and 1 sources"),
        ([(5, 4)], [(64,)], 2, "1 latents, 1 waves and 2 sources"),
        ([(4, 4)], [(64,)], 1, r"latents \(4, 4\) with a wave \(64,\): expected \(5, frames\)"),
        ([(5, 4)], [(1, 64)], 1, r"expected \(5, frames\) and \(samples,\)"),
        ([(5, 4)], [(1,)], 1, r"expected"),
        ([(5, 0)], [(64,)], 1, "0 frames of latents do not match 64 samples"),
        ([(5, 3)], [(64,)], 1, "3 frames of latents do not match 64 samples"),
    ],
)
def test_items_that_do_not_fit(latents, references, sources, said):
    check_items(CONFIG, [(5, 2)], [(64,)], 1)
    with pytest.raises(UsageError, match=said):
        check_items(CONFIG, latents, references, sources)


def test_no_band():
    with pytest.raises(CheckpointError, match="0 bands"):
        MbdConfig(sample_rate=24000, bands=())
