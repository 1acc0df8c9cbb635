"""A tiny Dia in a published folder."""

from pathlib import Path

import pytest

from tests.tiny.dia import dac_weights, dia_config, dia_weights, published_dac_config, write_published


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    dia, dac = dia_weights(dia_config(), seed=3, eos=1.3), dac_weights(published_dac_config())
    return write_published(tmp_path_factory.mktemp("published") / "tiny", dia, dac)
