"""Samplers as data: the settings of texts as a table, and the rules of a draw in their order."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np

    from tts_core.nn.host import Device

OFF: dict[str, float] = {  # the number with which the rule of a column's name changes nothing
    "cfg_filter_k": 0,
    "repetition_penalty": 1,
    "freq_penalty": 0,
    "presence_penalty": 0,
    "min_tokens": 0,
    "top_k": 0,
    "first_top_k": 0,
    "top_p": 1,
    "first_top_p": 2,
    "rising_top_p": -1,
    "typical_p": 1,
}


@dataclass(frozen=True)
class Sampler:
    """How a model draws ids from rows of logits.

    settings: frozen dataclass of numbers; its fields are the columns of the settings' table.
    rules: in order, names of functions of <side>/sampling.py and of rules of torch_ref/cuda/sampling.py.
    pick: by the Gumbel maximum, which takes a number an id, or the inverse cumulative distribution.
    end_scale: for the rule of this name.
    most: at least the largest number of ids that a top-k of the table keeps; 0 if unknown.
    """

    settings: type[Any]
    rules: tuple[str, ...]
    pick: Literal["gumbel", "inverse"] = "gumbel"
    end_scale: float = 1.0
    most: int = 0

    def table(self, settings: Iterable[Any]) -> np.ndarray:
        """Write the settings of texts, (B, N) float32."""
        import numpy as np

        names = columns(self.settings)._fields
        return np.array([[getattr(setting, name) for name in names] for setting in settings], np.float32)

    def named(self, table: Any, axes: int = 1) -> Any:
        """Return a table's columns by name. Any (B, N) array → a named tuple of (B, 1, ...), `axes` each."""
        shape = len(table), *[1] * (axes - 1)
        return columns(self.settings)(*(table[:, index].reshape(shape) for index in range(table.shape[1])))

    def needed(self, table: np.ndarray) -> Sampler:
        """Leave out the rules that change nothing for any row of a table, (B, N).

        Tables of the same rules have few different results, so that steps are compiled for each.
        """
        own = self.named(table)
        used = (rule not in OFF or bool((getattr(own, rule) != OFF[rule]).any()) for rule in self.rules)
        rules = tuple(rule for rule, is_used in zip(self.rules, used, strict=True) if is_used)
        most = max(
            (int(column.max()) for name, column in own._asdict().items() if name.endswith("_k")), default=0
        )
        return replace(self, rules=rules, most=1 << max(0, most - 1).bit_length())


class TextSettings:
    """Settings of the texts of a batch as a table on the device; written anew when they change."""

    def __init__(self, sampler: Sampler, host: Device):
        self.sampler, self.host = sampler, host
        self._known: list[Any] = []

    def of(self, settings: Sequence[Any]) -> tuple[Sampler, Any]:
        """Return the sampler that these texts need, and their table, (B, N) on the device."""
        if self._known != settings:
            table = self.sampler.table(settings)
            self._found = self.sampler.needed(table), self.host.to_device(table)
            self._known = [*settings]
        return self._found


@cache
def columns(settings: type[Any]) -> Any:
    """Build the named tuple of a table's columns: the fields of the dataclass `settings`."""
    return namedtuple(f"{settings.__name__}Columns", [field.name for field in fields(settings)])
