"""Networks of published files on each side, and one beside the two torch runs that bound its error."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from converters.part import ModelPart
from converters.published import open_published
from mlx_port.commands.verify.watch import Outputs, find_module, watched
from tests.golden.cases import existing
from tests.golden.exact import exact_rotary, exact_transform
from tests.sides import Side, Stored
from tests.temporary import run_folder
from tests.tolerance import assert_golden, assert_within

Subject = TypeVar("Subject", covariant=True)


@cache
def part_of(kind: str, weights: Path, config: Path | None = None, *folders: Path) -> ModelPart:
    """Open a network by our map, which claims every tensor of the file and fills every one of the network.

    weights: a file, the index of shards, or a folder.  config: its config.json, if it is not beside the file.
    folders: of further files, such as a tokenizer's.
    """
    place = existing(weights)
    if config is not None:
        place = run_folder("golden")
        files = [weights, *(file for folder in folders for file in existing(folder).iterdir())]
        if weights.suffix == ".json":
            shards = json.loads(weights.read_text())["weight_map"].values()
            files += [weights.parent / name for name in set(shards)]
        for name, file in {"config.json": existing(config), **{file.name: file for file in files}}.items():
            (place / name).symlink_to(file.resolve())
    return open_published(place, parts=[kind], offline=True).parts[kind]


def built(side: str, kind: str, weights: Stored) -> Any:
    """Build a network on a kind of side; the tables of float64 are not rounded to float32."""
    with exact_rotary(side):
        made = Side(side).network(kind, weights)
    if side == "float64" and kind == "vocos":
        exact_transform(made.head.istft)
    return made if side == "mlx" else made.requires_grad_(False)


@cache
def network(side: str, kind: str, *files: Path) -> Any:
    """files: as in `part_of`."""
    return built(side, kind, part_of(kind, *files))


def outputs(side: Side, net: Any, run: Callable[[], Any], *names: str) -> dict[str, np.ndarray]:
    """Run a part of a network, and return what its modules gave at their last call, in the side's own order.

    names: of modules, or of a quantizer's methods.
    """
    package = import_module(f"{side.package}.watch")
    kept = Outputs(package.framework("float64" if side.kind == "float64" else "float32"))
    with side.inference(), watched({name: find_module(net, name) for name in names}, kept):
        run()
    return {name: calls[-1] for name, calls in kept.by_module.items()}


@dataclass(frozen=True)
class Bench(Generic[Subject]):
    """A loaded network or pipeline on the side under test, and in torch in float32 and float64."""

    side: Subject
    torch32: Subject
    torch64: Subject

    @classmethod
    def load(cls, side: str, load: Callable[[str], Subject]) -> Bench[Subject]:
        """load: kind of side → subject."""
        made = {kind: load(kind) for kind in dict.fromkeys((side, "torch", "float64"))}
        return cls(made[side], made["torch"], made["float64"])

    def compare(self, what: str, golden: np.ndarray, compute: Callable[[Subject], np.ndarray]) -> None:
        """Require the result of `compute` on the side under test to be within the derived bound."""
        own, known, truth = self.results(compute)
        assert_golden(own, golden, known, truth, what)

    def results(self, compute: Callable[[Subject], np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Results of the side under test, of torch in float32 and of torch in float64."""
        known = compute(self.torch32)
        own = known if self.side is self.torch32 else compute(self.side)
        return own, known, compute(self.torch64)

    def parity(self, what: str, compute: Callable[[Subject], np.ndarray]) -> None:
        """The derived bound where no golden vector exists."""
        assert_within(*self.results(compute), what)
