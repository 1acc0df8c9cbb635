"""Contents of a pickle as plain data: dicts, lists, numbers and texts, bounded in number and depth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tts_core.errors import CheckpointError
from tts_core.files.unpickle import Name, Node, Opaque, Storage, Tensor

MOST_VALUES = 500_000  # a container that is used at several places counts at each of them
DEEPEST = 64  # containers within containers
LONGEST_KEY = 200  # characters


class Plain:
    """Converter to plain data: OmegaConf objects become dicts and lists, tensors go to `take`.

    take: called with each tensor's path and the tensor.
    """

    def __init__(self, take: Callable[[str, Tensor], None] | None = None):
        self._take, self._left = take, MOST_VALUES

    def of(self, value: Any, path: str = "", depth: int = DEEPEST) -> Any:
        """Copy a value as plain data. path: of the value, for messages and tensors' names.

        Raises CheckpointError for more than MOST_VALUES values or DEEPEST levels.
        """
        self._left -= 1
        if not depth or not self._left:
            raise CheckpointError(f"refused: {path[:80]} is nested too deeply, or contains too many values")
        match value:
            case Opaque():
                return value
            case Name() | Storage() | Tensor():
                return Opaque(type(value).__name__)
            case Node():
                return self.of(value.content(), path, depth - 1)
            case dict():
                return self._dict(value, path, depth)
            case list() | tuple():
                items = [self.of(item, f"{path}.{i}", depth - 1) for i, item in enumerate(value)]
                return items if isinstance(value, list) else tuple(items)
        return value

    def _dict(self, value: dict[Any, Any], path: str, depth: int) -> dict[Any, Any]:
        known = {}
        for key, item in value.items():
            if isinstance(key, str | bytes) and len(key) > LONGEST_KEY:
                raise CheckpointError(
                    f"refused: a key of {path[:80] or 'the file'} has {len(key)} characters"
                )
            inner = f"{path}.{key}" if path else str(key)
            if self._take is not None and isinstance(item, Tensor):
                self._take(inner, item)
            else:
                known[key] = self.of(item, inner, depth - 1)
        return known
