"""The embedded voice in float32 on a CPU: a text has the same codes alone, in a batch, and among texts that
join and leave. 40 texts and seeds; the first two once had other codes from frames 14 and 37.
"""

from __future__ import annotations

from importlib import import_module

import pytest

from benchmarks.exact_batches import KNOWN, difference, joining, text, together

pytestmark = pytest.mark.rest

FEW = 2  # frames of most texts: every row of the delay, in little time


@pytest.fixture(params=["torch_ref", "mlx_port"])
def pipeline(request: pytest.FixtureRequest):
    built = import_module(f"{request.param}.api").embedded_voice()
    if built.engine.host.backend not in ("torch-cpu", "mlx-cpu"):
        pytest.skip("the promise is for CPUs")
    return built


def test_forty_texts(pipeline) -> None:
    texts = [text(number) for number in range(40)]
    alone = [together(pipeline, [one], FEW)[0] for one in texts]
    ways = {"running": joining(pipeline, texts, FEW, seed=3)}
    for size, first in ((2, 0), (4, 8), (8, 16), (16, 24)):
        ways[f"a batch of {size}"] = [*alone[:first], *together(pipeline, texts[first : first + size], FEW)]
    for way, codes in ways.items():
        pairs = zip(alone, codes, strict=False)
        assert [difference(one, other) for one, other in pairs] == [None] * len(codes), way


def test_two_texts_that_differed(pipeline) -> None:
    frames = 40
    others = [(seed, f"[S1] {'Yes, of course. ' * (seed % 3 + 1)}") for seed in range(3)]
    for known in KNOWN:
        [alone] = together(pipeline, [known], frames)
        assert difference(alone, together(pipeline, [known, others[0]], frames)[0]) is None
        assert difference(alone, together(pipeline, [*others, known], frames)[3]) is None


@pytest.mark.parametrize("size", [8, 16])
def test_two_texts_that_differed_in_larger_batches(pipeline, size: int) -> None:
    others = [text(number) for number in range(2, size)]
    alone = [together(pipeline, [known], 40)[0] for known in KNOWN]
    shared = together(pipeline, [KNOWN[0], *others, KNOWN[1]], 40)
    assert [difference(one, shared[place]) for one, place in zip(alone, (0, -1), strict=True)] == [None, None]
