"""transformers' own classes as oracles; the sides are loaded as for the golden vectors."""

import pytest

from tests.golden.dia_bench import Loader


@pytest.fixture(scope="session")
def loader(tmp_path_factory: pytest.TempPathFactory) -> Loader:
    return Loader(tmp_path_factory.mktemp("oracles"))
