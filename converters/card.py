"""The model card of a converted folder, README.md: front matter for the hub, contents and origin."""

from __future__ import annotations

import re

from converters.part import Part
from converters.published import Published
from converters.rules.dequantize import Quantization
from tts_core import models
from tts_core.errors import SpeechError
from tts_core.files.regular import read_text
from tts_core.printable import one_line

NON_COMMERCIAL = "cc-by-nc-4.0"


def card_of(published: Published, dtype: str, quantization: Quantization | None, version: str) -> str:
    """Write the text of a model card. dtype: of the root's tensors. version: of this package."""
    parts = list(published.parts.values())
    root = parts[0]
    licenses = {models.network(part.kind).title: license_of(part) for part in parts}
    front = NON_COMMERCIAL if NON_COMMERCIAL in licenses.values() else license_of(root)
    name = one_line(root.origin.repository or root.origin.path.resolve().name)
    how = quantization
    form = f"{how.mode}, {how.bits} bits, groups of {how.group_size}; the rest {dtype}" if how else dtype
    contents = ", ".join(models.network(part.kind).title for part in parts)
    lines = [
        "---",
        "library_name: mlx",
        "pipeline_tag: text-to-speech",
        "tags:",
        *["- mlx", "- text-to-speech", f"- {root.kind}"],
        *[f"license: {front}"] * bool(front),
        *[f"base_model: {root.origin.repository}"] * bool(root.origin.repository),
        "---",
        "",
        f"# {name} for MLX",
        "",
        f"{contents}: converted by mlx-port {version}. Weights: {form}; norms, codecs and vocoders float32.",
        "conversion.json lists the sources with their hashes, the maps and the dropped tensors.",
        "",
    ]
    if any(licenses.values()):
        lines += ["Licenses of the weights, as published:", ""]
        lines += [f"- {title}: {license or 'see its source'}" for title, license in licenses.items()]
        if NON_COMMERCIAL in licenses.values():
            lines += ["", "CC-BY-NC 4.0 forbids commercial use. It applies to the folder mbd/ only."]
        lines += [""]
    if published.model is not None:
        model = models.model(published.model)
        lines += ["```", f"mlx-port generate --model path/of/this/folder {model.example}", "```", ""]
    return "\n".join(lines)


def license_of(part: Part) -> str | None:
    """Find the license of a part's weights; if several are published, in the source's model card."""
    if models.network(part.kind).license is not None:
        return models.network(part.kind).license
    try:
        front = read_text(part.files[0].parent / "README.md").split("---")
    except (SpeechError, OSError):  # a card is optional
        return None
    found = re.search(r"^license: *([\w.-]+) *$", front[1], re.MULTILINE) if len(front) > 2 else None
    return found[1] if found else None
