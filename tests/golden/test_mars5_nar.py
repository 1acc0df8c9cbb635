"""MARS5's diffusion against vectors of the original code: every file of the golden folder, each side.

A file's test compares everything in it and fails if a tensor was never read.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.golden.cases import DEFAULT, golden_root
from tests.golden.mars5_nar_checks import CHECKS, check
from tests.sides import BOTH
from tts_core.mars5.schedule import schedule

pytestmark = pytest.mark.golden

FILES = [file for file in sorted((golden_root() / "mars5").glob("*.safetensors")) if file.stem in CHECKS]

if FILES:

    @pytest.mark.parametrize(
        ("file", "side"),
        [pytest.param(file, side, id=f"mars5/{file.stem}/{side}") for file in FILES for side in BOTH],
    )
    def test_file(file: Path, side: str) -> None:
        pytest.importorskip("torch", reason="torch is not installed: it is the oracle of both sides")
        pytest.importorskip("mlx.core" if side == "mlx" else "torch", reason=f"{side} is not installed")
        check(file, side)

    def test_every_file_of_the_diffusion_is_looked_at() -> None:
        """mars5: every file of the diffusion's vectors belongs to a test."""
        stray = [file for file in (golden_root() / "mars5").glob("*.safetensors") if _ours(file.stem)]
        assert sorted(file.stem for file in stray) == sorted(file.stem for file in FILES)


def _ours(name: str) -> bool:
    return name.startswith(("nar_", "diffusion", "trim"))


def sine_first(table: Any) -> Any:
    return lambda timesteps, width: np.roll(table(timesteps, width), width // 2, axis=1)


def from_one(table: Any) -> Any:
    return lambda length, width: table(length + 1, width)[1:]


def without_leak(constants: Any) -> Any:
    def table(timesteps: int, n_classes: int, pinned: int) -> np.ndarray:
        made = constants(timesteps, n_classes, pinned)
        made[:, 3] = schedule(timesteps).log_1_min_alpha - np.log(n_classes)
        return made

    return table


def one_off(constants: Any) -> Any:
    return lambda *sizes: np.roll(constants(*sizes), -1, axis=0)


def pinned_longer(constants: Any) -> Any:
    return lambda timesteps, n_classes, pinned: constants(timesteps, n_classes, pinned - 1)


def pinned_shorter(constants: Any) -> Any:
    return lambda timesteps, n_classes, pinned: constants(timesteps, n_classes, pinned + 1)


def known_first(numbers: Any) -> Any:
    return lambda *given, last: numbers(*given, last=last)[::-1]


def guided_more(guided: Any) -> Any:
    return lambda logits, guidance_w, x_0_temp: guided(logits, guidance_w + 1, x_0_temp)


MISTAKES = [
    ("nar_forward", "residual_transformer.timestep_table", sine_first),
    ("nar_forward", "encoder.position_table", from_one),
    ("nar_step", "reverse.constants", without_leak),
    ("nar_step", "reverse.constants", one_off),
    ("nar_runs", "reverse.constants", pinned_longer),
    ("nar_runs", "reverse.constants", pinned_shorter),
    ("nar_runs", "reverse.numbers_for", known_first),
    ("nar_runs", "reverse.guided", guided_more),
]

# the effect of a mistake on a whole run depends on its draws: only the committed set
KEPT = {file.stem: file for file in [*FILES, *(DEFAULT / "mars5").glob("*.safetensors")]}

if FILES:

    @pytest.mark.parametrize(
        ("stem", "where", "mistake"),
        [pytest.param(*given, id=given[2].__name__) for given in MISTAKES if given[0] in KEPT],
    )
    def test_mistakes_are_seen(stem: str, where: str, mistake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """mars5: the checks can fail."""
        pytest.importorskip("torch", reason="torch is not installed: it is the oracle of both sides")
        file = KEPT[stem]
        module, name = where.split(".")
        module = import_module(f"torch_ref.mars5.{module}")
        monkeypatch.setattr(module, name, mistake(getattr(module, name)))
        with pytest.raises(AssertionError):
            check(file, "torch")
