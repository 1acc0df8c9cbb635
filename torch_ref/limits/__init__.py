"""Limits of each backend as data, and a mode that checks a run against them.

The table has one module per kind of operator.
"""

from torch_ref.limits.backend import Backend, backend_of, minimum_macos
from torch_ref.limits.enforce import Watch, enforce, observe
from torch_ref.limits.rule import Call, GraphCache, LimitError, Rule, Where
from torch_ref.limits.table import RULES, active, attention_trusted, longest_convolution, lstm_trusted

__all__ = [
    "RULES",
    "Backend",
    "Call",
    "GraphCache",
    "LimitError",
    "Rule",
    "Watch",
    "Where",
    "active",
    "attention_trusted",
    "backend_of",
    "enforce",
    "longest_convolution",
    "lstm_trusted",
    "minimum_macos",
    "observe",
]
