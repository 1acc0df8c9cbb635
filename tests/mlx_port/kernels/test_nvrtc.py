"""Texts of CUDA kernels: what MLX is told, and that NVIDIA's compiler, which needs no GPU, takes them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import pytest

from mlx_port.kernels import nvrtc, source
from tests.mlx_port.kernels.test_kernels import TRIALS, named
from tests.mlx_port.launches import KERNELS

WRITTEN = [one for one in TRIALS if "attention" not in named(one)]  # of kernels that are not MLX's own


def no_nvrtc() -> bool:
    try:
        nvrtc._library()
    except RuntimeError:
        return True
    return False


@pytest.fixture
def nothing_compiled() -> Iterator[None]:
    """No kernel is known from tests before, and none is known after."""
    for kernel in KERNELS:
        kernel._compiled.clear()
    yield
    for kernel in KERNELS:
        kernel._compiled.clear()


@pytest.fixture
def calls(nothing_compiled: None, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What MLX is told to run; each of the outputs is zeros."""
    made = list[dict[str, Any]]()

    def run(**told: Any) -> list[mx.array]:
        made.append(told)
        return [mx.zeros(*one) for one in zip(told["output_shapes"], told["output_dtypes"], strict=True)]

    monkeypatch.setattr(mx.metal, "is_available", lambda: False)
    monkeypatch.setattr(mx.fast, "precompiled_cuda_kernel", run)
    monkeypatch.setattr(nvrtc, "compiled", str.encode)
    return made


@pytest.mark.parametrize("trial", WRITTEN, ids=named)
def test_a_call_gives_what_its_text_asks_for(trial: tuple[Any, ...], calls: list[dict[str, Any]]) -> None:
    """A trial of zeros fails; arrays and sizes follow each other as the text has them."""
    assert not trial[0](*trial[1:])
    assert calls
    for call in calls:
        head = call["compiled_source"].decode().partition(f"__global__ void {call['name']}(")[2]
        asked = [one.split() for one in head.partition(")")[0].split(",")]
        arrays, sizes = asked[: -len(call["scalars"])], asked[-len(call["scalars"]) :]
        inputs = [nvrtc.TYPES[one.dtype] for one in call["inputs"]]
        outputs = [nvrtc.TYPES[one] for one in call["output_dtypes"]]
        found = [" ".join(words) for words in arrays]
        for line, dtype in zip(found, [*inputs, *outputs], strict=True):
            assert re.fullmatch(rf"(const )?{dtype}\* (__restrict__ )?\w+", line), found
        assert [line.startswith("const") for line in found] == [True] * len(inputs) + [False] * len(outputs)
        lengths = [length for one in call["inputs"] for length in one.shape]
        assert call["scalars"] == lengths
        assert [words[:2] for words in sizes] == [["const", "int"]] * len(lengths)


def test_names_of_variants_differ(calls: list[dict[str, Any]]) -> None:
    """MLX keeps one kernel of a name."""
    for trial in WRITTEN:
        trial[0](*trial[1:])
    texts = dict[str, bytes]()
    for call in calls:
        assert texts.setdefault(call["name"], call["compiled_source"]) == call["compiled_source"]
    assert len(set(texts.values())) == len(texts)


@pytest.mark.skipif(no_nvrtc(), reason="no NVRTC")
@pytest.mark.parametrize("architecture", ["sm_75", "sm_80", "sm_90"])
def test_texts_compile(architecture: str, calls: list[dict[str, Any]]) -> None:
    for trial in WRITTEN:
        trial[0](*trial[1:])
    for text in sorted({call["compiled_source"].decode() for call in calls}):
        assert nvrtc.compile_for(text, architecture)[:4] == b"\x7fELF"


@pytest.mark.skipif(no_nvrtc(), reason="no NVRTC")
def test_an_unknown_architecture_is_an_error_of_the_compiler() -> None:
    with pytest.raises(RuntimeError, match="NVRTC error"):
        nvrtc.compile_for('extern "C" __global__ void one() {}', "None")


@pytest.mark.skipif(no_nvrtc(), reason="no NVRTC")
def test_the_compilers_words_are_in_the_error() -> None:
    with pytest.raises(RuntimeError, match=r'(?s)NVRTC error 6: .*"nothing" is undefined'):
        nvrtc.compile_for('extern "C" __global__ void one(float* out) { out[0] = nothing; }', "sm_90")


def test_a_kernel_without_compiler_is_replaced(
    nothing_compiled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where NVRTC is missing, trials fail and speech takes MLX's own operations."""
    monkeypatch.setattr(source, "on_gpu", lambda: True)
    monkeypatch.setattr(mx.metal, "is_available", lambda: False)
    monkeypatch.setattr(nvrtc, "_library", lambda: (_ for _ in ()).throw(RuntimeError("no NVRTC")))
    monkeypatch.setattr(source.results, "known", lambda *_: None)
    source.passes.cache_clear()
    try:
        assert not source.passes(*TRIALS[0])
    finally:
        source.passes.cache_clear()
