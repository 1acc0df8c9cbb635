"""Build docs/measured/limits.md from the rules and from runs under `observe`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from benchmarks.limits.reasons import REASONS
from benchmarks.limits.workloads import WORKLOADS, broken, pairs
from torch_ref.limits import attention, convolution, matmul, selection, tensors, transforms
from torch_ref.limits.backend import Backend
from torch_ref.limits.rule import Rule

KINDS = (
    ("Convolution and padding", convolution.RULES),
    ("Attention", attention.RULES),
    ("Matrix products", matmul.RULES),
    ("Fourier transforms, complex numbers", transforms.RULES),
    ("Sampling, scans, sorting, indexing", selection.RULES),
    ("Dtypes, sizes, layers", tensors.RULES),
)
EFFECTS = {
    "error": "raises",
    "abort": "ends the process",
    "silent": "wrong numbers",
    "fallback": "runs on the CPU",
    "leak": "leaks memory",
    "slow": "slow",
}
EVIDENCE = {
    "source": "read in PyTorch's source",
    "binary": "read in the released wheels",
    "thread": "maintainers' threads",
    "claimed": "one report, or inferred",
}
INTRODUCTION = """\
# What MPS and small GPUs cannot do

Written by `python -m benchmarks.limits > docs/measured/limits.md`; a test compares it with that output.

The rules are data in `torch_ref/limits/`. `torch_ref.limits.active(Backend("mps", "2.13.0", "15.2"))` selects
those of a backend, and `with torch_ref.limits.enforce(Backend(...)):` runs any code on any machine and raises
at the first call that this backend could not run, or would run wrongly. This is an emulation of documented
rules: **nothing here was run on Metal.** An unknown macOS or chip counts as the worst one.

Every rule is reached by torch 2.11, which this project requires, to 2.15 on a macOS that its wheels run on:
14 to 27, with torch 2.15 15 to 27. What only older versions do is not listed.

No codec comes near `conv-large-kernel`, which was seen from kernel times batch of 256 x 2 on: the largest
kernel is 16. Mimi and Qwen3's codec decode a request a call, and recordings are encoded one at a time, so
their batch is 1; Vocos and DAC share calls, and 8 places stay below 16 x 8. Grouped are only Vocos's and
Qwen3's depthwise convolutions, of kernel 7 (`tests/torch_ref/limits/test_kernels.py`).
"""
TABLES = """\
## Rules broken without the layers of torch_ref, and with them

Each workload runs twice under `observe` for every pair of torch and macOS below: as it is usually written,
and through `torch_ref.layers`. A mark shows that the first run breaks the rule; the last row is the second
run.
"""


def report() -> str:
    """Build the page."""
    return "\n".join([INTRODUCTION, *_rules(), TABLES, *_tables(), *_reasons()])


def _rules() -> Iterator[str]:
    for kind, rules in KINDS:
        yield f"## {kind}\n"
        yield from _table(("rule", "condition", "where", "then", "instead", "source"), map(_row, rules))


def _row(rule: Rule) -> tuple[str, ...]:
    where = "; ".join(map(str, rule.where))
    device = f"{rule.device.upper()}: " if rule.device != "mps" else ""
    operators = ", ".join(f"`{op}`" for op in rule.ops)
    then = f"{EFFECTS[rule.effect]}: {rule.message.strip()}"
    source = f"{rule.source} ({EVIDENCE[rule.evidence]})"
    return f"`{rule.id}`", f"{operators}: {rule.condition}", device + where, then, rule.remedy, source


def _tables() -> Iterator[str]:
    backends = pairs()
    for workload in WORKLOADS:
        without = {backend: broken(workload.usual, backend) for backend in backends}
        found = list(dict.fromkeys(rule for rules in without.values() for rule in rules))
        yield f"### {workload.about}\n"
        rows = [
            (f"`{rule}`", *("●" if rule in without[backend] else "" for backend in backends))
            for rule in found
        ]
        rows.append(("**with torch_ref**", *(_names(broken(workload.ours, backend)) for backend in backends)))
        yield from _table(("rule", *map(_short, backends)), rows)


def _short(backend: Backend) -> str:
    return f"{backend.torch.rpartition('.')[0]} / {backend.macos}"


def _names(rules: Sequence[str]) -> str:
    return ", ".join(rules) or "none"


def _reasons() -> Iterator[str]:
    yield "## Known facts without a rule\n"
    yield from _table(("fact", "why"), REASONS.items())


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
    yield ""
