"""Each test of a pipeline runs on both sides."""

import pytest

from tests.sides import BOTH


@pytest.fixture(params=BOTH)
def side(request: pytest.FixtureRequest) -> str:
    return request.param
