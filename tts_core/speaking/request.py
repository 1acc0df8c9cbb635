"""Requests of models that read a text at once."""

from __future__ import annotations

from typing import NoReturn

from tts_core.errors import UsageError


class WholeRequest:
    """A request whose text does not go on."""

    is_open = False

    def opened(self) -> NoReturn:
        """Raise UsageError for text that is to follow."""
        raise UsageError("text: this model reads its text at once; give all of it")
