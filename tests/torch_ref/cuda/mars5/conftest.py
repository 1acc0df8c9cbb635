"""Triton's interpreter, without an error of version 3.9."""

from __future__ import annotations

from typing import Any

import pytest

from torch_ref.cuda.triton import INTERPRETED


@pytest.fixture(autouse=INTERPRETED)
def _scalar_conditions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a scalar condition that is broadcast stay boolean: it became an integer, which is no mask."""
    from triton.runtime.interpreter import InterpreterBuilder  # pyright: ignore[reportMissingImports]

    splat = InterpreterBuilder.create_splat

    def create_splat(self: Any, kind: Any, scalar: Any) -> Any:
        made = splat(self, kind, scalar)
        made.data = made.data.astype(bool) if scalar.data.dtype == bool else made.data
        return made

    monkeypatch.setattr(InterpreterBuilder, "create_splat", create_splat)
