"""Parts of the rows: from a flag, or from the rank."""

from types import SimpleNamespace

import pytest

from mlx_port.commands.batch.run import division
from tts_core.errors import UsageError


def test_from_the_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLX_RANK", raising=False)
    assert division(None) == (0, 1)
    assert division("1/3") == (1, 3)
    for bad in ("3/3", "1", "a/b", "-1/2", "1/0", "1/2/3"):
        with pytest.raises(UsageError, match="is not a part"):
            division(bad)


def test_from_the_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    import mlx.core as mx

    group = SimpleNamespace(rank=lambda: 2, size=lambda: 4)
    monkeypatch.setattr(mx.distributed, "init", lambda: group)
    monkeypatch.setenv("MLX_RANK", "2")
    assert division(None) == (2, 4)
    with pytest.raises(UsageError, match="divides the rows already"):
        division("0/2")
