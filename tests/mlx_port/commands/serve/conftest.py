"""A server around a model that only talks."""

from __future__ import annotations

import pytest

for name in ("starlette", "uvicorn", "prometheus_client", "python_multipart", "websockets", "httpx"):
    pytest.importorskip(name, reason=f"{name} is not installed: extra serve")


@pytest.fixture
def server(tmp_path):
    from tests.mlx_port.commands.serve.served import served

    with served(tmp_path / "voices") as found:
        yield found
