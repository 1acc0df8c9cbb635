"""A tiny Dia in a converted folder, as convert-weights writes it."""

from pathlib import Path

import pytest

from converters.convert import convert
from converters.published import open_published


@pytest.fixture(scope="session")
def converted(published: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("converted") / "tiny"
    convert(open_published(published, offline=True), folder, dtype="float32")
    return folder
