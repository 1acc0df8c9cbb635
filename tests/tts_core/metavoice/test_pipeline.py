"""MetaVoice's pipeline with a counting network: order of the networks' runs, progress, cancelling."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.hosts import LateHost
from tests.tiny.metavoice import documents
from tts_core.codecs.policy import CodecPolicy
from tts_core.codecs.vocos import VOCOS_ENCODEC_24KHZ
from tts_core.errors import CancelledError, UsageError
from tts_core.metavoice.config import END_OF_AUDIO
from tts_core.metavoice.inputs import MetaVoiceInputs
from tts_core.metavoice.model import (
    METAVOICE_FIRST_STAGE,
    METAVOICE_SECOND_STAGE,
    METAVOICE_SPEAKER_ENCODER,
)
from tts_core.metavoice.net import MetaVoiceNet
from tts_core.metavoice.pipeline import MetaVoicePipeline
from tts_core.metavoice.request import STAGES
from tts_core.pipeline import Progress
from tts_core.prompt import Prompt
from tts_core.results import merge
from tts_core.speaking.speech import Sound

HOP, FRAMES = 320, 12
TEXT = "Hello there. It is late. Who are you?"
PIECES = {"piece_seconds": 13 / 15, "seed": 1}  # three
PROMPT = Prompt.of(np.resize(np.hanning(400).astype(np.float32), 31 * 24_000))


class Slots:
    """Slots whose texts all have the same codes."""

    steps, ahead, together = 1, 0, 1024
    can_step = True

    def __init__(self, engine: Engine):
        self.engine, self.drawn = engine, dict[int, int]()

    def join(self, texts: dict[int, MetaVoiceInputs]) -> None:
        if not self.drawn:
            self.engine.calls.append("first stage")
        self.drawn |= dict.fromkeys(texts, 0)

    def leave(self, slot: int) -> None:
        del self.drawn[slot]

    def launch(self, steps: int) -> np.ndarray:
        self.engine.between("first stage")
        ids = np.zeros((steps, 8), np.int32)
        for slot, drawn in self.drawn.items():
            ids[0, slot] = [*[5, 1030] * FRAMES, END_OF_AUDIO][drawn]
            self.drawn[slot] += 1
        return ids

    def read(self, launched: np.ndarray) -> np.ndarray:
        return launched


class Engine(MetaVoiceNet):
    """Networks whose pieces have FRAMES frames. calls: their runs.  between: called inside them."""

    def __init__(self) -> None:
        configs = {
            "metavoice": METAVOICE_FIRST_STAGE,
            "metavoice_second_stage": METAVOICE_SECOND_STAGE,
            "metavoice_speaker_encoder": METAVOICE_SPEAKER_ENCODER,
            "vocos": VOCOS_ENCODEC_24KHZ,
        }
        host: Any = LateHost("torch-cpu", free=10**12)
        none: Any = None
        networks: Any = {
            kind: SimpleNamespace(config=config, embed=self.embed) for kind, config in configs.items()
        }
        super().__init__(
            networks,
            documents(),
            host,
            make_slots=lambda network, **sizes: Slots(self),
            fill_codebooks=self.filled,
            fault=none,
        )
        self.calls = list[str]()
        self.between: Callable[[str], None] = lambda stage: None

    def embed(self, utterances: Sequence[np.ndarray]) -> np.ndarray:
        self.calls.append("speaker")
        return np.ones(METAVOICE_FIRST_STAGE.speaker_embedding_size, np.float32)

    def filled(self, network: Any, text: Any, codes: np.ndarray, *_: Any) -> np.ndarray:
        self.calls.append("second stage")
        return np.concatenate([codes] * 4)

    def decode(
        self, windows: Sequence[Sound], policy: CodecPolicy | None, check: Callable[[], None]
    ) -> list[np.ndarray]:
        self.calls.append("decoder")
        self.between("decoder")
        check()
        return [np.resize(np.array([0.1, -0.1], np.float32), HOP * one.codes.shape[1]) for one in windows]


@pytest.fixture
def pipeline() -> Any:
    engine: Any = Engine()
    return MetaVoicePipeline(engine)


def test_a_stream_yields_once_a_piece_and_runs_no_network_before_it_is_read(pipeline: Any) -> None:
    calls, stream = pipeline.engine.calls, pipeline.stream(TEXT, prompt=PROMPT, **PIECES)
    assert calls == []
    for place, part in enumerate(stream):
        assert calls == ["speaker", *["first stage", "second stage", "decoder"] * (place + 1)]
        assert part.codes.shape == (8, FRAMES)
        assert (part.segment_idx, part.finish_reason) == (place, "stop" if place == 2 else None)
        assert part.stage_seconds.keys() == set(STAGES)
    assert place == 2


def test_memory_is_checked_for_the_pieces_side_by_side(
    pipeline: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = []
    monkeypatch.setattr(pipeline.engine, "check", jobs.append)
    pipeline.generate(TEXT, prompt=PROMPT, **PIECES)
    pipeline.generate(TEXT, prompt=PROMPT, max_frames=99, **PIECES)  # one after the other
    pipeline.generate_batch([TEXT, "So."], prompts=PROMPT, batch_size=3, **PIECES)
    pipeline.generate_codes([TEXT, "So."], PROMPT)
    assert [job.batch for job in jobs] == [3, 1, 3, 2]
    with pytest.raises(UsageError, match=r"^batch_size: 0 is not a number of pieces"):
        pipeline.generate_batch([TEXT], prompts=PROMPT, batch_size=0)


def test_progress_tells_stages_and_seconds(pipeline: Any) -> None:
    seen: list[Progress] = []
    made = merge(list(pipeline.stream(TEXT, prompt=PROMPT, progress=seen.append, **PIECES)))
    seen = [one for one in seen if not one.step]  # as stages begin; the others come by the clock
    stages = ["speaker", *["first stage", "second stage", "decoder", "decoder"] * 3]
    assert [one.stage for one in seen] == stages
    assert [one.seconds for one in seen] == sorted(one.seconds for one in seen)
    assert (seen[0].seconds, seen[-1].seconds) == (0, made.audio_seconds)
    assert all(one.expected == pytest.approx(35 / 15) for one in seen)  # characters of the pieces
    seen = []
    pipeline.generate(TEXT, prompt=PROMPT, progress=seen.append, **PIECES)
    stages = ["speaker", *["first stage"] * 3, *["second stage"] * 3, *["decoder"] * 4]
    assert [one.stage for one in seen if not one.step] == stages
    seen = []
    both = pipeline.generate_batch([TEXT, "So."], prompts=PROMPT, progress=seen.append, **PIECES)
    assert {one.stage for one in seen} == set(STAGES)
    assert seen[-1].seconds == pytest.approx(sum(one.audio_seconds for one in both))


@pytest.mark.parametrize("stage", ["first stage", "decoder"])
@pytest.mark.parametrize("way", ["generate", "generate_batch"])
def test_cancel_ends_a_generation_inside_a_stage(pipeline: Any, stage: str, way: str) -> None:
    cancel = threading.Event()
    pipeline.engine.between = lambda now: cancel.set() if now == stage else None
    given = (
        {"texts": [TEXT], "prompts": PROMPT} if way == "generate_batch" else {"text": TEXT, "prompt": PROMPT}
    )
    with pytest.raises(CancelledError):
        getattr(pipeline, way)(**given, cancel=cancel)
    assert pipeline.engine.calls[-1] == stage


def test_texts_that_share_a_voice_have_it_read_once(pipeline: Any) -> None:
    pipeline.generate_batch([TEXT, "So.", "Yes."], prompts=PROMPT)
    assert pipeline.engine.calls.count("speaker") == 1
