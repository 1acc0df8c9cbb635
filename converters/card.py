"""The model card of a converted folder, README.md: front matter for the hub, contents and origin."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from converters.part import ModelPart
from converters.published import Published
from converters.rules.dequantize import Quantization
from tts_core import models
from tts_core.errors import SpeechError
from tts_core.files.record import CARD, RECORD
from tts_core.files.regular import read_text
from tts_core.files.whole import whole_file
from tts_core.printable import one_line
from tts_core.voice import embedded

NON_COMMERCIAL = "cc-by-nc-4.0"
MEASURED, JUDGED = "## Measured by mlx-port verify", "## Measured by mlx-port judge"
NO_MEASUREMENTS = (
    "Nothing was measured for this checkpoint; `mlx-port verify SRC FOLDER` measures it and writes it here."
)


def card_of(
    published: Published,
    dtype: str,
    quantization: Quantization | None,
    version: str,
    repository: str | None = None,
) -> str:
    """Write the text of a model card.

    dtype: of the root's tensors.
    version: of this package.
    repository: hub id that it is uploaded to.
    """
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
        "language:",
        *[f"- {language}" for language in _languages(published.model)],
        "tags:",
        *[f"- {tag}" for tag in _tags(root)],
        *[f"license: {front}"] * bool(front),
        *[f"base_model: {root.origin.repository}"] * bool(root.origin.repository),
        *["base_model_relation: quantized"] * bool(root.origin.repository and how),
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
    if how is not None:
        lines += ["Not quantized:", "", *_wide(parts), ""]
    if published.model is not None:
        lines += _commands(models.MODELS[published.model].example, repository)
    return "\n".join([*lines, MEASURED, "", NO_MEASUREMENTS, ""])


def _languages(model: str | None) -> Sequence[str]:
    return ("en",) if model is None else models.MODELS[model].languages


def _tags(root: ModelPart) -> list[str]:
    """List the hub's tags; mlx-audio loads folders that keep the published config.json."""
    own = (
        [models.network(root.kind).published_type, "mlx-audio"] if root.published is not None else [root.kind]
    )
    return ["mlx", "text-to-speech", "tts", *map(str, own)]


def _wide(parts: Sequence[ModelPart]) -> list[str]:
    """List what is not quantized in the parts that are, with the reasons."""
    networks = [models.network(part.kind) for part in parts]
    listed = [f"- {network.title}: {wide.what}: {wide.why}" for network in networks for wide in network.wide]
    return [*listed, "- norms, codecs and vocoders: few numbers, whose errors are heard directly"]


def _commands(example: str, repository: str | None) -> list[str]:
    """List the lines that fetch and use the folder. example: flags of `mlx-port generate`."""
    folder = "path/of/this/folder" if repository is None else repository.rpartition("/")[2]
    fetch = [] if repository is None else [f"hf download {repository} --local-dir {folder}"]
    return [
        *["```", *fetch, f"mlx-port generate --model {folder} {example}", "```", ""],
        *["```python", "import mlx_port", "", f'model = mlx_port.load("{folder}")', "```", ""],
    ]


def add_measurements(folder: Path, lines: Sequence[str], heading: str = MEASURED) -> None:
    """Put lines under a heading of a folder's card, in place of those of an earlier call. Raises OSError.

    A folder without a card, or that another program wrote, stays as it is.
    """
    card = folder / CARD
    if not (card.is_file() and (folder / RECORD).exists()):
        return
    text = read_text(card).replace(f"{MEASURED}\n\n{NO_MEASUREMENTS}\n", "")
    before, _, old = text.partition(f"{heading}\n")
    after = "".join(old.partition("\n## ")[1:])
    with whole_file(card, card.stat().st_mode & 0o777) as file:
        own = [before.rstrip(), "", heading, "", *[f"- {line}" for line in lines], ""]
        file.write(("\n".join(own) + after).encode())


def measurements(folder: Path) -> dict[str, str]:
    """Read the lines that `add_measurements` wrote, each with its heading. Raises SpeechError."""
    card, heading, found = folder / CARD, "", {}
    for line in read_text(card).splitlines() if card.is_file() else ():
        heading = line if line.startswith("#") else heading
        if heading in (MEASURED, JUDGED) and line.startswith("- "):
            found[line.removeprefix("- ")] = heading
    return found


def license_of(part: ModelPart) -> str | None:
    """Find the license of a part's weights; if several are published, in the source's model card."""
    if part.files[0].is_relative_to(embedded.FOLDER):
        return embedded.LICENSE
    if models.network(part.kind).license is not None:
        return models.network(part.kind).license
    try:
        front = read_text(part.files[0].parent / "README.md").split("---")
    except (SpeechError, OSError):  # a card is optional
        return None
    found = re.search(r"^license: *([\w.-]+) *$", front[1], re.MULTILINE) if len(front) > 2 else None
    return found[1] if found else None
