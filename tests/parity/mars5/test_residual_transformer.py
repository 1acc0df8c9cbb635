"""MARS5's diffusion, MLX against PyTorch in the derived bound; whole runs against the plain form, exactly."""

from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.parity.mars5.plain_diffusion import Plain, plain_run
from tests.sides import BY_PACKAGE, ORACLE, PORT, YARDSTICK, Side
from tests.tiny.mars5 import to_end
from tests.tiny.mars5_nar import TEXT, codes
from tests.tiny.networks import nar_config, tiny
from tests.tiny.states import states
from tests.tolerance import assert_within
from tts_core.errors import GenerationError
from tts_core.mars5.diffusion import Cells, Diffusion, first_noise, make_cells
from tts_core.nn.noise import HostNoise

EVERY_SIDE = pytest.mark.parametrize("side", list(BY_PACKAGE.values()), ids=list(BY_PACKAGE))
REFERENCE = codes(6, seed=1)
SAFE = 1e-5  # of a margin: several times what float32 moves these log-probabilities
T = 9


@cache
def small(side: Side) -> Any:
    return side.network("mars5_nar", tiny("mars5_nar"))


def both_speakers(side: Side, net: Any) -> Any:
    pair = [net.speaker(side.array(REFERENCE.T[None])), net.no_speaker()]
    return side.array(np.concatenate([side.numpy(one) for one in pair]))


def logits(side: Side, net: Any, *, frames: int, t: int, speakers: Any = None) -> np.ndarray:
    speakers = both_speakers(side, net) if speakers is None else speakers
    given = net.read(side.array(TEXT[None]), speakers, frames=frames, timesteps=T)
    return side.numpy(net(side.array(codes(frames).T[None]), given, side.array(np.array([t]))))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision(dtype: str) -> None:
    """MLX's half-precision products are as near to float64 as torch's; between layers all is float32."""
    truth = logits(ORACLE, small(ORACLE), frames=7, t=4)
    known = logits(YARDSTICK, YARDSTICK.network("mars5_nar", tiny("mars5_nar"), dtype), frames=7, t=4)
    own = logits(PORT, PORT.network("mars5_nar", tiny("mars5_nar"), dtype), frames=7, t=4)
    assert known.dtype == own.dtype == np.float32
    exact = logits(YARDSTICK, small(YARDSTICK), frames=7, t=4)
    assert np.abs(known - truth).max() > 20 * np.abs(exact - truth).max(), "this ran in float32"
    assert_within(own, known, truth, dtype)


def cells_for(*, deep: bool, seed: int, frames: int = 5) -> Cells:
    sizes = nar_config()
    first = codes(frames, seed=7)[0]
    start = first_noise(HostNoise(seed), sizes.n_codebooks, frames, sizes.n_classes)
    return make_cells(first, start, REFERENCE if deep else None, n_classes=sizes.n_classes)


SETTINGS = {
    "defaults": Diffusion(timesteps=T, q0_override_steps=2),
    "as upstream draws": Diffusion(timesteps=T, q0_override_steps=2, draws="per class"),
    "no guidance": Diffusion(timesteps=T, guidance_w=1.0, x_0_temp=1.0, q0_override_steps=0),
    "never pinned": Diffusion(timesteps=T, q0_override_steps=T, draws="per class"),
    "always pinned, hot": Diffusion(timesteps=5, guidance_w=0.5, x_0_temp=2.0, q0_override_steps=0),
    "one step": Diffusion(timesteps=1, q0_override_steps=0),
}
SEEDS = {"shallow": 1, "deep": 2}


@cache
def expected(name: str, clone: str) -> Plain:
    cells = cells_for(deep=clone == "deep", seed=SEEDS[clone])
    return plain_run(ORACLE, small(ORACLE), TEXT, REFERENCE, cells, SETTINGS[name], HostNoise(SEEDS[clone]))


@pytest.mark.parametrize("clone", SEEDS)
@pytest.mark.parametrize("name", SETTINGS)
def test_runs_are_those_of_the_plain_form(name: str, clone: str) -> None:
    plain, cells = expected(name, clone), cells_for(deep=clone == "deep", seed=SEEDS[clone])
    assert plain.margin > SAFE, f"a near tie of {plain.margin:.1e}: choose another seed"
    for side_name, side in BY_PACKAGE.items():
        diffusion = side.module("mars5.reverse").ReverseDiffusion(small(side))
        noise = HostNoise(SEEDS[clone])
        run = diffusion.begin(TEXT, REFERENCE, cells, SETTINGS[name], noise=noise)
        np.testing.assert_array_equal(np.stack([*states(side, run)]), plain.states, err_msg=side_name)
        made = to_end(diffusion.begin(TEXT, REFERENCE, cells, SETTINGS[name], noise=noise))
        np.testing.assert_array_equal(made, plain.states[-1].T)
        assert made.dtype == np.int32


def test_the_settings_differ() -> None:
    """The settings of the test above give different codes."""
    every = [expected(name, clone).states.tobytes() for name in SETTINGS for clone in SEEDS]
    assert len(set(every)) == len(every)


@pytest.mark.parametrize("clone", SEEDS)
def test_known_codes_come_out_as_they_went_in(clone: str) -> None:
    cells, states = cells_for(deep=clone == "deep", seed=SEEDS[clone]), expected("defaults", clone).states
    np.testing.assert_array_equal(states[-1][cells.known], cells.clean[cells.known])
    np.testing.assert_array_equal(
        states[1 : T - 2, :, 0], np.broadcast_to(cells.clean[:, 0], (T - 3, len(cells.clean)))
    )
    noisy = expected("never pinned", clone).states[1:-1]
    assert (noisy[:, cells.known] != cells.clean[cells.known]).any(), "known cells are never noised"


@EVERY_SIDE
def test_nothing_is_read_before_the_end(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.parity.device_reads import Forbidden

    diffusion = side.module("mars5.reverse").ReverseDiffusion(small(side))
    run = diffusion.begin(
        TEXT, REFERENCE, cells_for(deep=True, seed=0), SETTINGS["defaults"], noise=HostNoise(0)
    )
    with Forbidden(side, monkeypatch):
        for _ in range(T):
            run.step()
        with pytest.raises(AssertionError, match="a read from the device: item"):  # of `finite`
            run.result()


@EVERY_SIDE
@pytest.mark.parametrize("draws", ["per cell", "per class"])
def test_a_network_without_numbers(side: Side, draws: Any) -> None:
    broken = tiny("mars5_nar")  # a copy: tiny("mars5_nar") is shared
    broken.tensors["tfm.decoder.layers.1.linear2.bias"][3] = np.inf
    diffusion = side.module("mars5.reverse").ReverseDiffusion(side.network("mars5_nar", broken))
    settings = Diffusion(timesteps=3, draws=draws)
    with pytest.raises(GenerationError, match="NaN or infinite in float32"):
        to_end(diffusion.begin(TEXT, REFERENCE, cells_for(deep=False, seed=1), settings, noise=HostNoise(0)))
