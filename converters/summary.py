"""The summary that `convert-weights` prints, from the contents of conversion.json."""

from __future__ import annotations

import re
from typing import Any

from tts_core.printable import counted


def summary(report: dict[str, Any], destination: str | None) -> list[str]:
    """List the lines: a part each, what was dropped and not used, the size. destination: None if dry."""
    lines = []
    for kind, part in report["parts"].items():
        files = [file if isinstance(file, str) else file["name"] for file in part["files"]]
        lines.append(
            f"{kind}: {part['map']} from {part['source']} ({', '.join(files)}): "
            f"{counted(part['source_tensors'], 'tensor')} -> {part['tensors']}, "
            f"{part['parameters']:,} parameters, {_size(part['bytes'])}"
        )
        lines += _dropped(part["dropped"])
    lines += _quantized(report)
    lines += [f"not used: {name}: {why}" for name, why in report["ignored_files"].items()]
    size = f"{_size(report['bytes'])}, {report['dtype']}"
    lines += [f"would write {size}" if destination is None else f"wrote {destination}: {size}"]
    if "destination" in report:
        lines += [report["destination"]]
    if "card" in report:
        lines += [f"would upload to {report['upload']}: {', '.join(report['uploaded'])}", ""]
        lines += report["card"].splitlines()
    return lines


def _dropped(dropped: dict[str, str]) -> list[str]:
    """List dropped tensors, one line per reason; tensors that differ in their index only are counted."""
    reasons: dict[str, dict[str, int]] = {}
    for name, why in dropped.items():
        pattern = re.sub(r"(?<=\.)\d+(?=\.)", "*", name)
        names = reasons.setdefault(why, {})
        names[pattern] = names.get(pattern, 0) + 1
    return [
        f"  dropped {', '.join(f'{n} x {name}' if n > 1 else name for name, n in names.items())}: {why}"
        for why, names in reasons.items()
    ]


def _quantized(report: dict[str, Any]) -> list[str]:
    how, lines = report["quantization"], []
    parts = {kind: part for kind, part in report["parts"].items() if part["quantization"]}
    for kind, part in parts.items():
        others = [name for name, value in part["quantization"].items() if value is False]
        lines.append(
            f"quantized{f' in {kind}' if len(parts) > 1 else ''}: "
            f"{counted(part['quantized_layers'], 'layer')}, "
            f"{how['mode']}, {how['bits']} bits, groups of {how['group_size']}"
            + (f", {how['numbers']} numbers" if "numbers" in how else "")
        )
        if others:
            more = f" and {len(others) - 3} more, see config.json" if len(others) > 3 else ""
            lines.append(
                f"  {len(others)} layers whose width is not a multiple of the group stay {part['dtype']}: "
                f"{', '.join(others[:3])}{more}"
            )
    return lines


def _size(nbytes: int) -> str:
    return f"{nbytes / 1e9:.2f} GB" if nbytes >= 1e9 else f"{nbytes / 1e6:.2f} MB"
