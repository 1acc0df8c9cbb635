"""Write docs/measured/chips.md: predicted milliseconds a step on Apple's chips, beside measured ones.

    python benchmarks/chips.py [> docs/measured/chips.md]

The predictions are arithmetic on published figures (mlx_port/commands/bench/paper.py). Measured figures come
from the files in docs/measured/chips, each the output of one `mlx-port bench --json`.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlx_port.commands.bench import paper
from mlx_port.commands.bench.paper import CHIPS, Chip, chip_of, fit, predicted_ms
from tts_core import models
from tts_core.speed import speed, step_bytes

SENT = Path(__file__).parents[1] / "docs/measured/chips"
BITS = (16, 8, 4)
COMMAND = "mlx-port bench --random {} --bits 16,8,4 --json > {}.json"
Measured = Mapping[tuple[str, str, int], list[float]]  # chip, model, bits → ms a step of single texts

INTRODUCTION = """# Apple's chips: predicted, to be measured

**These are predictions: this project had no Mac.** They are arithmetic on published figures; the columns
"measured" wait for yours. `python benchmarks/chips.py > docs/measured/chips.md` writes the page.

If you have a Mac, please fill the empty columns: run

```
{commands}
```

(some minutes; what does not fit in memory is skipped) and send the files in an issue or a pull request: they
contain no paths and no names of yours. Files in `docs/measured/chips` appear in the tables. `--batch 1,4`
also times four texts at once (Dia, MetaVoice).

## The model

A step reads its weights once and launches its kernels one after the other:

    milliseconds = bytes / ({share:.2f} x memory speed) + launches x {cost:.2f} us

- The share of the memory speed and the cost of a launch are a least-squares fit to the five speeds that
  [mlx-lm's BENCHMARKS.md](https://github.com/ml-explore/mlx-lm/blob/d78bf58/mlx_lm/BENCHMARKS.md) gives for
  Qwen3-4B on an M4 Max (mlx 0.29.2), with {launched} launches a token, counted in its code. The fit differs
  from them by at most {off:.1f} %. On other chips both may differ.
- Bytes are those of the weights that every step reads, with scales (affine, groups of 64). Caches, which add
  a few per cent, are not counted.
- Launches are counted from the graph of a step, as a Mac would run it (`tests/mlx_port/test_launches.py`).
- Guidance computes two rows a step, which read the weights once. Where MLX has no kernel for two rows
  (16 bits on M1 and M2), `mlx_port` has its own.
"""


def sent(folder: Path = SENT) -> Measured:
    """Read the files that users sent."""
    found: dict[tuple[str, str, int], list[float]] = {}
    for file in sorted(folder.glob("*.json")):
        told = json.loads(file.read_text("utf-8"))
        chip, model = chip_of(told["machine"]["device"]), told["model"]
        if chip is None or model["random_weights_of"] is None:
            continue
        for case in told["cases"]:
            if case["batch"] == 1 and case["refused"] is None:
                key = chip.name, model["name"], case["bits"]
                found.setdefault(key, []).append(case["step_ms"])
    return found


def page(measured: Measured) -> str:
    """Build the page."""
    share, cost = fit()
    counted = [name for name in models.NAMES if speed(name).launches is not None]
    commands = "\n".join(COMMAND.format(name, name) for name in counted)
    parts = [
        INTRODUCTION.format(
            commands=commands,
            share=share,
            cost=1000 * cost,
            launched=paper.PUBLISHED_LAUNCHES,
            off=100 * paper.worst_error(),
        )
    ]
    parts += [_table(name, measured) for name in counted]
    return "\n".join([*parts, _sources()])


def _table(name: str, measured: Measured) -> str:
    configs = next(iter(models.model(name).sizes.values()))
    facts = speed(name)
    count = facts.step_launches(configs)
    assert count is not None
    read = {bits: step_bytes(name, configs, "bfloat16", _how(bits)) for bits in BITS}
    sizes = ", ".join(f"{size / 1e9:.2f} GB at {bits}" for bits, size in read.items())
    lines = [
        f"## {models.model(name).title}",
        "",
        f"One text, milliseconds a step ({facts.unit}); real time is {facts.real_time(configs):.1f} ms.",
        f"A step reads {sizes} bits, and launches {count} kernels.",
        "",
        "| chip | GB/s |" + "".join(f" predicted, {bits} bits | measured |" for bits in BITS),
        "|---|---|" + "---|---|" * len(BITS),
    ]
    for chip in CHIPS:
        cells = [
            f" {predicted_ms(read[bits], count, chip):.1f} | {_measured(measured, chip, name, bits)} |"
            for bits in BITS
        ]
        lines.append(f"| {chip.name} | {chip.memory_speed:g} |{''.join(cells)}")
    return "\n".join([*lines, ""])


def _how(bits: int) -> dict[str, Any] | None:
    return None if bits == 16 else {"group_size": 64, "bits": bits, "mode": "affine"}


def _measured(measured: Measured, chip: Chip, name: str, bits: int) -> str:
    times = measured.get((chip.name, name, bits))
    return "" if times is None else f"{statistics.median(times):.1f}"


def _sources() -> str:
    lines = ["## Memory speeds", "", "Apple's figures of the largest variant, as quoted on these pages:", ""]
    for source in dict.fromkeys(chip.source for chip in CHIPS):
        lines.append(f"- {', '.join(chip.name for chip in CHIPS if chip.source == source)}: <{source}>")
    smaller = [
        f"[{chip.name} {chip.smaller[0]:g} GB/s]({chip.smaller[1]})"
        for chip in CHIPS
        if chip.smaller is not None
    ]
    return "\n".join([*lines, "", f"Variants with fewer GPU cores are slower: {', '.join(smaller)}.", ""])


def main() -> None:
    print(page(sent()), end="")


if __name__ == "__main__":
    main()
