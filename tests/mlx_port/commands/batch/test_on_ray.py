"""What Ray Data is asked for, and what its actors do; Ray is a stand-in, which runs them here."""

import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mlx_port.commands.batch import on_ray
from mlx_port.commands.batch.worker import Setting
from mlx_port.commands.loading_flags import Loading
from tts_core.bulk.outcome import Outcome
from tts_core.bulk.requests import BulkWork
from tts_core.bulk.rows import TextRow


class Echo:
    """A worker that says for how many rows it was called."""

    def __init__(self, setting: Setting):
        assert setting.places == 2

    def speak(self, rows: Iterable[tuple[TextRow, str]]) -> Iterator[Outcome]:
        together = list(rows)
        for row, key in together:
            yield Outcome(row.number, key, row.id, fields={"together": len(together)})


class Data:
    """Rows of Ray Data. blocks: in which they lie."""

    def __init__(self, rows: Sequence[dict[str, bytes]], blocks: int):
        self.rows, self.blocks = rows, blocks

    def map_batches(
        self, kind: Callable[..., Any], fn_constructor_args: Any, batch_size: int, **how: Any
    ) -> Any:
        assert self.blocks * batch_size >= len(self.rows) > (self.blocks - 1) * batch_size
        run, found = kind(*fn_constructor_args), []
        for start in range(0, len(self.rows), batch_size):
            given = [row["row"] for row in self.rows[start : start + batch_size]]
            found += run({"row": np.array(given, object)})["outcome"]
        return SimpleNamespace(iter_rows=lambda: ({"outcome": one} for one in found))


def test_a_worker_takes_four_batches_of_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ray: Any = ModuleType("ray")
    data: Any = ModuleType("ray.data")
    ray.init, ray.cluster_resources, ray.data = lambda **how: None, dict, data
    data.DataContext = SimpleNamespace(get_current=SimpleNamespace)
    data.ActorPoolStrategy = lambda size: size
    data.from_items = lambda items, override_num_blocks: Data(items, override_num_blocks)
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setitem(sys.modules, "ray.data", data)
    monkeypatch.setattr(on_ray, "build_speaker", Echo)
    monkeypatch.setattr(logging.getLogger("ray.data"), "level", logging.NOTSET)
    rows = [(TextRow(number, f"r{number}", "a"), f"k{number}") for number in range(11)]
    setting = Setting(None, Loading(), 2, BulkWork({}, tmp_path, ".flac", None))
    found = list(on_ray.speak_on_ray(setting, rows, workers=1, gpus=0))
    assert [one.key for one in found] == [key for _, key in rows]
    assert [one.fields["together"] for one in found] == [8] * 8 + [3] * 3
