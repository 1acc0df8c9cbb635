"""YAML mappings out of files that are not trusted."""

from __future__ import annotations

from typing import Any

from tts_core.errors import CheckpointError

LARGEST_YAML = 64 << 10  # characters; a published configuration has some 800


def parse_yaml(text: str, where: str) -> dict[str, Any]:
    """Parse a YAML mapping of plain values. where: the file, for messages.

    Raises CheckpointError for a text that is too long, no YAML or nested too deeply, for another value than
    a mapping, and for aliases: with them, a few lines describe values of any size.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise yaml.YAMLError("aliases are not supported")
            return super().compose_node(parent, index)

    if len(text) > LARGEST_YAML:
        raise CheckpointError(f"{where}: {len(text)} characters; at most {LARGEST_YAML} are read")
    try:
        content = yaml.load(text, Loader)
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, OverflowError, RecursionError) as fault:
        raise CheckpointError(f"{where}: not readable as YAML: {_reason(fault):.160}") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{where}: expected an object, found {content!r:.40}")
    return content


def _reason(fault: Exception) -> str:
    """Name the problem and its line, without the excerpt that YAML shows."""
    problem, mark = getattr(fault, "problem", None), getattr(fault, "problem_mark", None)
    reason = str(problem or fault) or type(fault).__name__
    return f"line {mark.line + 1}: {reason}" if mark is not None else " ".join(reason.split())
