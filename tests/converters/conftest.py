"""A published Dia with its codec, opened."""

import pytest


@pytest.fixture(scope="session")
def source():
    pytest.importorskip("torch", reason="torch is not installed: the published pickles need it")
    from converters.published import open_published
    from tests.converters.folders import DAC_HF, V_0626_HF

    return open_published(V_0626_HF, codec=DAC_HF)
