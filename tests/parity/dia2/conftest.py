"""Golden checkpoints of Dia2 on both sides."""

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, cast

import pytest

from converters.convert import Quantization, convert
from converters.published import open_published
from mlx_port.dia2.pipeline import Dia2Pipeline as MlxPipeline
from tests.contract.speakers import assert_same
from tests.tiny.dia2 import published_dia2
from tests.windows import Windows
from torch_ref.dia2.pipeline import Dia2Pipeline as TorchPipeline
from tts_core.results import GenerationResult


@pytest.fixture(scope="package")
def published(tmp_path_factory) -> Callable[[str], Path]:
    return cache(lambda name: published_dia2(tmp_path_factory.mktemp("dia2") / name, name))


@pytest.fixture(scope="package")
def converted(published, tmp_path_factory) -> Callable[..., Path]:
    @cache
    def make(name: str, dtype: str = "float32", quantization: Quantization | None = None) -> Path:
        folder = tmp_path_factory.mktemp("converted") / name
        convert(open_published(published(name)), folder, dtype=dtype, quantization=quantization)
        return folder

    return make


@pytest.fixture(scope="package")
def windows(published) -> Callable[[str], Windows]:
    return cache(
        lambda name: Windows(
            "dia2", lambda dtype: TorchPipeline.load(published(name), device="cpu", dtype=cast(Any, dtype))
        )
    )


@pytest.fixture(scope="package")
def same(windows) -> Callable[[GenerationResult, GenerationResult], None]:
    """Require the same speech of "v_main"."""
    return partial(assert_same, windows=windows("v_main"))


@pytest.fixture(scope="package")
def both(published, converted) -> Callable[[str], tuple[TorchPipeline, MlxPipeline]]:
    return cache(
        lambda name: (
            TorchPipeline.load(published(name), device="cpu", dtype="float32"),
            MlxPipeline.load(converted(name)),
        )
    )
