"""Chromium on the page of a server with the embedded voice; without Chromium or selenium, skipped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.mlx_port.commands.serve.web.chromium import Page, chromium

if TYPE_CHECKING:
    from tests.mlx_port.commands.serve.served import Served


@pytest.fixture(scope="session")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A tab of the browser."""
    with chromium(tmp_path_factory.mktemp("downloads")) as found:
        yield found


@pytest.fixture
def page(tab: Page, embedded: Served) -> Iterator[Page]:
    """The page of the embedded voice. At the end the console has no complaints, such as of the policy."""
    tab.open(embedded.url)
    yield tab
    assert tab.errors() == []
