"""`mlx-port bench --sweep`: one case under each setting that may pay on a Mac, in a process of its own.

MLX reads its limits once, so a setting needs a new process.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mlx_port.runtime.switches import SWEEP, named
from tts_core.errors import GenerationError
from tts_core.printable import one_line

RUN = "from mlx_port.commands.start import main; main()"


def sweep(flags: Sequence[str], tell: Callable[[str], None]) -> list[dict[str, Any]]:
    """Time a case under each setting; return a report of each.

    flags: of `mlx-port bench`, for one case.  tell: called with a line before each.
    Raises GenerationError with a run's own message.
    """
    reports = []
    for index, settings in enumerate(SWEEP, start=1):
        tell(f"{index} of {len(SWEEP)}: {named(settings)}")
        command = [sys.executable, "-c", RUN, "bench", *flags, "--json"]
        done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True)
        if done.returncode:
            said = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1]
            raise GenerationError(f"sweep: with {named(settings)} the run failed: {one_line(said)}")
        reports.append(json.loads(done.stdout))
    return reports


def one_case(flags: Mapping[str, Any], *, offline: bool) -> list[str]:
    """Write flags of `mlx-port bench`, by name. A flag whose value is None is left out."""
    written = [
        part for name, value in flags.items() if value is not None for part in (f"--{name}", str(value))
    ]
    return [*written, "--offline"] if offline else written


def table(reports: Sequence[Mapping[str, Any]]) -> str:
    """Format reports of `sweep` as text for a terminal."""
    cases = [report["cases"][0] for report in reports]
    plain = statistics.fmean(case["step_ms"] for case, own in zip(cases, SWEEP, strict=True) if not own)
    lines = [f"{'ms/step':>9}{'host ms':>9}{'to none':>9}  setting"]
    for case, settings in zip(cases, SWEEP, strict=True):
        times = case["step_ms"] / plain
        lines.append(f"{case['step_ms']:>9.2f}{case['host_ms']:>9.2f}{times:>9.2f}  {named(settings)}")
    return "\n".join(
        [*lines, "to none: time of a step, divided by that without a setting (mean of both runs)"]
    )
