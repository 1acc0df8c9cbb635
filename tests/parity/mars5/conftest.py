"""Each test of a pipeline runs on both sides."""

import pytest

from tests.sides import SIDES


@pytest.fixture(params=SIDES)
def side(request: pytest.FixtureRequest) -> str:
    return request.param
