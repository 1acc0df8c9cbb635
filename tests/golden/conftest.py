"""One loader for the whole run: cases that share a checkpoint load and convert it once."""

import pytest

from tests.golden.dia_bench import Loader


@pytest.fixture(scope="session")
def loader(tmp_path_factory: pytest.TempPathFactory) -> Loader:
    return Loader(tmp_path_factory.mktemp("golden"))
