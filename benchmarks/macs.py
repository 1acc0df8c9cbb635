"""Write docs/measured/macs.md from the reports that owners of Macs sent (the files in docs/measured/macs).

    python benchmarks/macs.py > docs/measured/macs.md

Each file is the output of one `mlx-port bench --report --json FILE`.
"""

from __future__ import annotations

import json
from pathlib import Path

from mlx_port.commands.bench.report import markdown

SENT = Path(__file__).parents[1] / "docs/measured/macs"
INTRODUCTION = """# Macs

This project had no Mac. `python benchmarks/macs.py > docs/measured/macs.md` writes this page from the reports
in `docs/measured/macs`. To send one, run this in a clone, with [uv](https://docs.astral.sh/uv/):

```
uvx --from . mlx-port bench --report --json my-mac.json
```

It prints rows to paste into an issue, and writes the file. Every model is timed at its published size with
random weights, at 16, 8 and 4 bits (on a CPU only in float32), a minute each. A row of what does not
fit in memory, or is too slow, says so; `-`: the minute ended before the speech. Rows with settings are of
Qwen3-TTS at 8 bits under each [setting to try](../use/mlx.md#settings-to-try-on-a-mac). `--random qwen3`
times one model, `--model FOLDER` one with its own weights. The file has no path and no name of yours.

## Published by others

Not measured by this project, and other programs than this one:

| model | ms a frame (real time) | chip | source |
|---|---|---|---|
| Qwen3-TTS 0.6B | 52 to 57 (80) | M3 Max | mlx-audio; the page that states it was not found again |
| Qwen3-TTS 0.6B, 8 and 4 bits | 52 to 58 (80) | M2 Max, 64 GB | [speech-swift][swift] |
| Dia | no figure in MLX on any chip was found | | |

[swift]: https://github.com/soniqo/speech-swift/blob/main/docs/benchmarks/tts-roundtrip.md

## Reports
"""
NONE = "None has been sent yet: no figure of this project on a Mac exists."


def page(folder: Path = SENT) -> str:
    """Build the page."""
    reports = [
        report for file in sorted(folder.glob("*.json")) for report in json.loads(file.read_text("utf-8"))
    ]
    return f"{INTRODUCTION}\n{markdown(reports) if reports else NONE}\n"


if __name__ == "__main__":
    print(page(), end="")
