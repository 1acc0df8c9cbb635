"""Each test of a pipeline runs on both sides."""

import pytest

from tests.sides import SIDES, Side


@pytest.fixture(params=list(SIDES.values()), ids=list(SIDES))
def side(request: pytest.FixtureRequest) -> Side:
    return request.param
