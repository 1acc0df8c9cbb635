"""Workers on a Ray cluster: actors of Ray Data, on any number of nodes and GPUs.

Outcomes come back to this process, which writes them; Ray repeats the rows of a worker that died.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from mlx_port.commands.batch.worker import Setting, build_speaker
from tts_core.bulk.outcome import Outcome
from tts_core.bulk.rows import TextRow
from tts_core.errors import NotFoundError
from tts_core.extras import install

BATCHES = 4  # batches of places that a worker takes at once: the last rows of one leave places empty


class Actor:
    """A worker in a thread of its own: streams of MLX belong to a thread, and Ray calls from several."""

    def __init__(self, setting: Setting):
        self._thread = ThreadPoolExecutor(1)
        self._speaker = self._thread.submit(build_speaker, setting).result()

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, list[bytes]]:
        """Speak a batch of Ray Data: pickled pairs of row and key → pickled outcomes."""
        return {"outcome": self._thread.submit(self._speak, batch["row"]).result()}

    def _speak(self, rows: Sequence[bytes]) -> list[bytes]:
        outcomes = self._speaker.speak(pickle.loads(row) for row in rows)
        return [pickle.dumps(outcome) for outcome in outcomes]


def check_ray() -> None:
    """Raise NotFoundError if Ray is not installed."""
    try:
        import ray.data  # pyright: ignore[reportMissingImports]  # noqa: F401
    except ImportError:
        raise NotFoundError(f"--engine: Ray is not installed; {install('ray')}") from None


def speak_on_ray(
    setting: Setting, rows: Sequence[tuple[TextRow, str]], workers: int | None, gpus: float
) -> Generator[Outcome]:
    """Speak rows on a cluster: the one of RAY_ADDRESS, else one of this machine.

    workers: actors; None: one a GPU, or two without.  gpus: that each takes.
    Paths of the model and of references must be the same on every node.
    """
    import ray  # pyright: ignore[reportMissingImports]
    from ray.data import ActorPoolStrategy  # pyright: ignore[reportMissingImports]

    ray.init(ignore_reinit_error=True, log_to_driver=False, logging_level="ERROR")
    logging.getLogger("ray.data").setLevel(logging.ERROR)  # its own plans and progress
    ray.data.DataContext.get_current().enable_progress_bars = False
    count = workers or int(ray.cluster_resources().get("GPU", 0) / gpus if gpus else 0) or 2
    model = None if setting.model is None else str(Path(setting.model).expanduser().resolve())
    at_once = BATCHES * setting.places
    data: Any = ray.data.from_items(
        [{"row": pickle.dumps(row)} for row in rows], override_num_blocks=-(-len(rows) // at_once)
    )
    spoken = data.map_batches(
        Actor,
        fn_constructor_args=(replace(setting, model=model),),
        batch_size=at_once,
        batch_format="numpy",
        compute=ActorPoolStrategy(size=count),
        num_gpus=gpus,
    )
    for found in spoken.iter_rows():
        yield pickle.loads(found["outcome"])
