"""Each test of a pipeline runs on both sides."""

import pytest

from tests.sides import BY_PACKAGE, Side


@pytest.fixture(params=list(BY_PACKAGE.values()), ids=list(BY_PACKAGE))
def side(request: pytest.FixtureRequest) -> Side:
    return request.param
