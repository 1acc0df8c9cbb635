"""Small published models, each written and converted once, and the command on them."""

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest

from converters.convert import convert
from converters.rules.dequantize import Quantization
from mlx_port.commands import main as cli
from tests.tiny.record import record_again


@pytest.fixture(scope="session")
def converted(origin, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Folders by name, dtype and quantization."""

    @cache
    def make(name: str, dtype: str = "float32", quantization: Quantization | None = None) -> Path:
        folder = tmp_path_factory.mktemp("converted") / "model"
        convert(origin(name).open(), folder, dtype=dtype, quantization=quantization)
        return folder

    return make


@pytest.fixture
def damaged(converted, tmp_path) -> Callable[..., Path]:
    """Copies of converted folders, changed, that look as if they had been written so."""

    def make(name: str, *damages: Callable[[Path], None], form: tuple = ()) -> Path:
        shutil.copytree(converted(name, *form), tmp_path / "model")
        for damage in damages:
            damage(tmp_path / "model")
        record_again(tmp_path / "model")
        return tmp_path / "model"

    return make


@pytest.fixture
def verify(origin, capsys, verify_here) -> Callable[..., SimpleNamespace]:
    """Run the command in this process; return its exit code and output."""

    def run(name: str, destination: Path, *flags: str) -> SimpleNamespace:
        capsys.readouterr()
        given = origin(name)
        sources = [str(file) for file in given.files]
        code = cli.run(["verify", *sources, str(destination), *given.words, "--verbose", *flags])
        out, err = capsys.readouterr()
        return SimpleNamespace(code=code, out=out, err=err)

    return run
