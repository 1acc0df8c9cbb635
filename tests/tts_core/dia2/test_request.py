"""Dia2's requests: limits, seeds, memory, and refusals."""

from typing import Any

import pytest

from tests.tiny.dia2 import GOLDEN
from tests.tiny.networks import dia2_config
from tts_core.codecs import mimi
from tts_core.codecs.mimi import MIMI_24KHZ
from tts_core.dia2.footprint import PLAN, Dia2Job
from tts_core.dia2.model import DIA2_2B
from tts_core.dia2.options import Dia2Options
from tts_core.dia2.request import Dia2Facts
from tts_core.dia2.tokenizer import FILE
from tts_core.errors import UsageError
from tts_core.memory.fits import together
from tts_core.memory.machine import Machine
from tts_core.nn.noise import HostNoise

FACTS = Dia2Facts.of(
    {"dia2": dia2_config(), "mimi": MIMI_24KHZ},
    {"dia2": {FILE: (GOLDEN / "tokenizer" / FILE).read_text("utf-8")}},
)


def ask(text: str = "[S1] Yes.", prompt: Any = None, **changes: Any):
    return FACTS.request(text, Dia2Options(**changes), prompt)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"max_seconds": 5.0}, "max_seconds: 5 is more than this model's limit, 4.6"),
        ({"max_frames": 58}, "max_frames: 58 exceeds this model's limit of 57 frames"),
        ({"include_prefix": True}, "include_prefix: there are no recordings"),
    ],
)
def test_options_that_do_not_fit_are_refused(changes, named):
    with pytest.raises(UsageError, match=named):
        ask(**changes)


def test_pieces_have_seeds_of_their_own():
    text = " ".join(["[S1] Hello there my friend."] * 8)
    asked = ask(text, seed=7)
    assert len(asked.pieces) > 2
    drawn = {asked.noise_of(place).uniform(0, (1,)).item() for place in range(len(asked.pieces))}
    assert len(drawn) == len(asked.pieces)
    assert HostNoise(7).uniform(0, (1,)).item() in drawn
    assert asked.job() == Dia2Job(57, 30, guided=True)
    assert ask(seed=7, cfg_scale=1.0).job() == Dia2Job(57, 0, guided=False)


CONFIGS = {"dia2": DIA2_2B, "mimi": MIMI_24KHZ}


def test_memory_of_the_published_size():
    """Weights of the published file; 57,344 numbers a step and row in the cache."""
    job, codec = PLAN.job(CONFIGS, None, None, 1), 4 * (96_151_393 - 32 * 2049)
    whole, half = (
        PLAN.footprint(CONFIGS, job, Machine(dtype, "torch-cpu")) for dtype in ("float32", "bfloat16")
    )
    assert whole.weights - codec == pytest.approx(4 * 1_919_556_608, rel=0.001)
    rows, states = 2 * 57_344 * 2 * 1536, 2 * 4 * mimi.carried(MIMI_24KHZ)
    assert half.row == rows + rows // 28 + states
    assert half.minute == 60 * 12.5 * 2 * 57_344 * 2
    assert half.weights - codec == pytest.approx((whole.weights - codec) / 2, rel=0.001)


def test_memory_falls_with_what_is_left_out():
    def running(job: Dia2Job) -> int:
        return PLAN.footprint(CONFIGS, job, Machine("bfloat16", "mlx-metal")).running

    job = Dia2Job(1483, 300)
    assert running(Dia2Job(1483, 300, guided=False)) < running(job)
    several = together([job, Dia2Job(10, guided=False)])
    assert several == Dia2Job(1483, 300, batch=2)
    assert running(several) > running(job)
    assert running(Dia2Job(100)) < running(Dia2Job(1483)) < running(Dia2Job(1483, 700))


def test_the_codec_decodes_the_frames_of_runs_that_share_its_calls() -> None:
    """On CPUs a call has one row."""
    for backend, rows in (("mlx-metal", 3), ("torch-mps", 3), ("torch-cpu", 1)):
        machine = Machine("bfloat16", backend)
        three, one = Dia2Job(20, batch=3), Dia2Job(20 * rows)
        found, wanted = (PLAN.footprint(CONFIGS, job, machine).sound for job in (three, one))
        assert found == wanted > 0


def test_requests_of_a_checkpoint_share_its_tokenizer() -> None:
    content = (GOLDEN / "tokenizer/tokenizer.json").read_text("utf-8")
    again, other = ("".join(list(content)), content + " ")
    one, two, three = (
        Dia2Facts.of(CONFIGS, {"dia2": {FILE: text}}).reader.tokenizer for text in (content, again, other)
    )
    assert two is one
    assert three is not one


@pytest.mark.parametrize(("words", "voice"), [(100, 0), (200, 0), (220, 188), (2000, 188)])
def test_the_estimate_of_a_long_text_is_the_plan_of_its_request(words: int, voice: int):
    """Later pieces read 15 seconds of the first one's voice."""
    text = "[S1] " + "one " * words
    facts = Dia2Facts.of(CONFIGS, {"dia2": {FILE: (GOLDEN / "tokenizer" / FILE).read_text("utf-8")}})
    job, planned = facts.request(text, Dia2Options(), None).job(), PLAN.job(CONFIGS, text, None, 1)
    assert planned.prefix_frames == job.prefix_frames == voice
    assert planned.frames <= job.frames
    assert (planned == job) == (voice > 0)
    assert PLAN.job(CONFIGS, text, 20, 3) == Dia2Job(250, voice, batch=3)


def test_an_estimate_beyond_the_context_is_refused():
    assert PLAN.job(CONFIGS, "[S1] Hello there.", None, 1).frames < 100
    assert PLAN.job(CONFIGS, None, 20, 1).frames == 250
    assert PLAN.job(CONFIGS, None, 20, 4) == Dia2Job(250, batch=4)
    with pytest.raises(UsageError, match=r"seconds: 200 is more than this model's limit, 118\.6"):
        PLAN.job(CONFIGS, None, 200, 1)
