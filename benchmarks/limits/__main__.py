"""Print docs/measured/limits.md."""

import sys

from benchmarks.limits.report import report

if __name__ == "__main__":
    sys.stdout.write(report())
