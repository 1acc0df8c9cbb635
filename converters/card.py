"""The model card of a converted folder, README.md: front matter for the hub, then what it is and whence."""

from __future__ import annotations

import re

from converters.dequantize import Quantization
from converters.part import Part
from converters.published import Published
from tts_core.models import KINDS, MODELS


def card_of(published: Published, dtype: str, quantization: Quantization | None, version: str) -> str:
    """The whole text. dtype: of the root's tensors; version: of this package."""
    parts = list(published.parts.values())
    root = parts[0]
    title = KINDS[root.kind].title if published.model is None else MODELS[published.model].title
    lines = ["---", "library_name: mlx", "pipeline_tag: text-to-speech", "tags:", "- mlx", "- text-to-speech"]
    lines += [f"- {root.kind}"]
    license = _license(root)
    lines += [f"license: {license}"] * bool(license)
    lines += [f"base_model: {root.origin.repository}"] * bool(root.origin.repository)
    name = root.origin.repository or root.origin.path.resolve().name
    how = quantization
    form = f"{how.mode}, {how.bits} bits, groups of {how.group_size}; the rest {dtype}" if how else dtype
    lines += [
        "---",
        "",
        f"# {name} for MLX",
        "",
        f"{title} with its codec, converted by mlx-port {version}. Weights: {form}; norms and codec float32.",
        "Sources, their hashes, the maps used and what was dropped: conversion.json.",
        "",
        "```python",
        "import mlx_port",
        "",
        'model = mlx_port.load("path/of/this/folder")',
        'result = model.generate("[S1] Hello there. [S2] Hi!")',
        "```",
        "",
    ]
    return "\n".join(lines)


def _license(part: Part) -> str | None:
    """What the source's own card says, where the source is a folder that has one."""
    card = part.files[0].parent / "README.md"
    if not card.is_file():
        return None
    front = card.read_text("utf-8", errors="replace").split("---")
    found = re.search(r"^license: *([\w.-]+) *$", front[1], re.MULTILINE) if len(front) > 2 else None
    return found[1] if found else None
