"""A server around a model that only talks."""

from __future__ import annotations

import ssl
from collections.abc import Iterator

import pytest

for name in ("starlette", "uvicorn", "prometheus_client", "python_multipart", "websockets", "httpx"):
    pytest.importorskip(name, reason=f"{name} is not installed: extra serve")


@pytest.fixture(scope="session", autouse=True)
def one_context() -> Iterator[None]:
    """Let clients share a TLS context, which no test uses: each would read all certificates, 50 ms."""
    from httpx._transports import default

    context = ssl.create_default_context()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(default, "create_ssl_context", lambda **_: context)
        yield


@pytest.fixture(scope="session")
def embedded(tmp_path_factory):
    """A server of the embedded voice."""
    pytest.importorskip("mlx.core", reason="MLX is not installed")
    from mlx_port.commands.serve.run import sources
    from mlx_port.commands.serve.settings import Settings
    from tests.mlx_port.commands.serve.served import served

    source = sources(Settings())["embedded"]
    with served(tmp_path_factory.mktemp("voices"), {"embedded": source}) as found:
        yield found


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One server for all tests of a module whose requests leave nothing behind."""
    from tests.mlx_port.commands.serve.served import served

    with served(tmp_path_factory.mktemp("shared") / "voices") as found:
        yield found


@pytest.fixture(scope="module")
def strict(tmp_path_factory):
    """The same, of a server that ignores nothing."""
    from mlx_port.commands.serve.settings import Settings
    from tests.mlx_port.commands.serve.served import served

    with served(tmp_path_factory.mktemp("strict") / "voices", settings=Settings(strict=True)) as found:
        yield found


@pytest.fixture
def server(tmp_path):
    from tests.mlx_port.commands.serve.served import served

    with served(tmp_path / "voices") as found:
        yield found
