"""Change the packages in small ways, run the tests of the changed line, and list what no test noticed.

The changes are mutmut's operators.  mutmut itself writes all mutants of a function side by side into the
source, which breaks tests that read it; here a mutant is one changed file in a copy of the checkout.

    python -m tests.mutants                             coverage, 150 mutants, build/mutants/report.md
    python -m tests.mutants --keep-coverage --seed 2    another sample, the same coverage
    python -m tests.mutants --again build/mutants/results.json      those that were not caught;
        with --keep-coverage --limit 600 by all their tests, otherwise also by new tests
    python -m tests.mutants --keep-coverage --without-rest          only the tests of `make test`
    python -m tests.mutants --list                      the files that mutants are drawn from; no test runs
    python -m tests.mutants --root ../other             another checkout
"""

import argparse
import compileall
import json
import os
import py_compile
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from coverage import Coverage, CoverageData  # pyright: ignore[reportMissingImports]

from tests.mutants.changes import CAUGHT, Mutant, again, places, sample, sources
from tests.mutants.selection import (
    PACKAGES,
    choose,
    file_of,
    files_fastest_first,
    importers,
    place_of,
    same_files,
    test_of,
)

HERE = Path(__file__).parent
NOT_COPIED = shutil.ignore_patterns(
    ".git", ".venv", "build", "dist", "__pycache__", ".*_cache", ".hypothesis", "*.egg-info"
)
ORDER = ("killed", "timed out", "survived", "no test", "unclear", "not run")

SETTINGS = """
[run]
data_file = {out}/data
parallel = true
include =
    {include}
# pytest sets it in the processes that a test starts
context = ${{PYTEST_CURRENT_TEST-}}
disable_warnings = no-data-collected, module-not-measured, couldnt-parse, already-imported
"""


# -- coverage


def measure(root: Path, out: Path, tests: Sequence[str], workers: int) -> None:
    """Run the tests under coverage, each one a context; processes that they start are measured as well."""
    shutil.rmtree(out / "coverage", ignore_errors=True)
    (out / "coverage" / "start").mkdir(parents=True)
    settings = out / "coverage" / "settings"
    include = "\n    ".join(f"{root}/{top}/*" for top in (*PACKAGES, "tests"))
    settings.write_text(SETTINGS.format(out=out / "coverage", include=include))
    (out / "coverage" / "start" / "sitecustomize.py").write_text(
        "import coverage\ncoverage.process_startup()\n"
    )
    environment = _environment(root, out / "coverage" / "start") | {"COVERAGE_PROCESS_START": str(settings)}
    record = out / "coverage" / "tests.json"
    command = [*_pytest(record), "-n", str(workers), "--dist", "loadfile", *tests]
    done = subprocess.run(command, cwd=root, env=environment, check=False)
    if not record.is_file():
        raise SystemExit(f"the tests did not run: pytest exited with {done.returncode}")
    Coverage(config_file=str(settings)).combine([str(out / "coverage")])
    passed = Counter(each["outcome"] for each in json.loads(record.read_text())["tests"].values())
    print("under coverage:", ", ".join(f"{count} {outcome}" for outcome, count in passed.items()), flush=True)


class Covered:
    """Tests by line, from a measured run. without_rest: only those of `make test`."""

    def __init__(self, root: Path, out: Path, *, without_rest: bool = False):
        self.root = root
        self.data = CoverageData(str(out / "coverage" / "data"))
        self.data.read()
        tests = json.loads((out / "coverage" / "tests.json").read_text())["tests"]
        self.seconds = {
            test: each["seconds"]
            for test, each in tests.items()
            if each["outcome"] == "passed" and not (without_rest and each["rest"])
        }
        self.lines = cache(self._lines)

    def _lines(self, path: str) -> dict[int, set[str]]:
        contexts = self.data.contexts_by_lineno(str(self.root / path))
        return {line: {test_of(each) for each in found if each} for line, found in contexts.items()}

    def tiers(self, mutant: Mutant) -> list[set[str]]:
        """Tests for a mutant, the most relevant first.

        Tests that run the line, then others of their files, which may share a fixture or a cached value.
        Users of a line that runs at import are not measured: for it, tests that run any line of the file,
        then of the files that import it.
        """
        place = place_of(sources(self.root)[mutant.path], mutant.line, mutant.last)
        if not place.at_import:
            lines = self.lines(mutant.path)
            ran = set().union(*(lines.get(line, ()) for line in range(place.first, place.last + 1)))
            return [ran, same_files(ran, self.seconds)]
        tiers, seen, files = [], set(), {mutant.path}
        for _ in range(3):
            tiers.append({test for path in files for tests in self.lines(path).values() for test in tests})
            seen |= files
            files = {each for path in files for each in importers(path, sources(self.root))} - seen
        return tiers


# -- one mutant


def run(
    copy: Path, tests: Sequence[str], seconds: dict[str, float], *, limit: float, memory: int
) -> dict[str, str]:
    """Run tests in a copy of the checkout until one fails."""
    record, chosen, tree = copy / "record.json", copy / "chosen.json", copy / "tree"
    record.unlink(missing_ok=True)
    chosen.write_text(json.dumps(list(tests)))
    command = [*_pytest(record), "-x", f"--mutants-chosen={chosen}", f"--basetemp={copy / 'tmp'}"]
    if sys.platform == "linux":
        command.append(f"--mutants-memory={memory}")
    process = subprocess.Popen(
        [*command, *files_fastest_first(tests, seconds)],
        cwd=tree,
        env=_environment(tree),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
        errors="replace",
    )
    try:
        output, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        return {"outcome": "timed out", "by": "", "error": f"longer than {limit:.0f} s"}
    finally:
        _end(process)
    # 5: no test was collected, since the change alters parameters
    if process.returncode in (0, 5):
        return {"outcome": "survived", "by": "", "error": ""}
    failure = json.loads(record.read_text())["failure"] if record.is_file() else None
    failure = failure or {"test": "", "error": ""}
    error = failure["error"] or " ".join(output.split())[-300:]
    return {"outcome": "killed", "by": failure["test"], "error": error}


def _end(process: subprocess.Popen[str]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()


def judge(mutant: Mutant, copy: Path, covered: Covered, options: argparse.Namespace) -> None:
    """Run the mutant's tests; one that fails or takes too long must pass without the change."""
    tiers = covered.tiers(mutant)
    mutant.covering = len(tiers[0])
    mutant.tests = choose(tiers, covered.seconds, options.limit / 2)
    if not mutant.tests:
        mutant.outcome = "no test"
        return
    file, begin = copy / "tree" / mutant.path, time.monotonic()
    limits = {"limit": options.limit, "memory": options.memory}
    original = file.read_text()
    file.write_text(mutant.source)
    try:
        result = run(copy, mutant.tests, covered.seconds, **limits)
    finally:
        file.write_text(original)
    mutant.seconds = round(time.monotonic() - begin, 1)
    mutant.outcome, mutant.by, mutant.error = result["outcome"], result["by"], result["error"]
    if mutant.outcome in CAUGHT:
        suspects = [mutant.by] if mutant.by in covered.seconds else mutant.tests
        if run(copy, suspects, covered.seconds, **limits)["outcome"] != "survived":
            mutant.outcome = "unclear"


def judge_all(
    mutants: list[Mutant], covered: Covered, options: argparse.Namespace, saved: Callable[[], object]
) -> None:
    """Judge mutants in parallel, one per worker in its own copy, until the time is over; save after each."""
    over = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        saving = threading.Lock()
        copies: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for worker in range(options.workers):
            copy = Path(folder, str(worker))
            shutil.copytree(options.root, copy / "tree", symlinks=True, ignore=NOT_COPIED)
            for package in PACKAGES:  # by content: a change in the same second, of the same size, is seen
                mode = py_compile.PycInvalidationMode.CHECKED_HASH
                compileall.compile_dir(copy / "tree" / package, quiet=1, invalidation_mode=mode)
            copies.put(copy)

        def work(mutant: Mutant) -> None:
            if time.monotonic() > over:
                return
            copy = copies.get()
            try:
                judge(mutant, copy, covered, options)
            finally:
                copies.put(copy)
            with saving:
                saved()
            done = sum(each.outcome != "not run" for each in mutants)
            where = f"{mutant.path}:{mutant.line}"
            print(f"{done:4} {mutant.outcome:9} {mutant.seconds:5.1f} s  {where}  {mutant.by}", flush=True)

        with ThreadPoolExecutor(options.workers) as pool:
            list(pool.map(work, mutants))


# -- the report


def report(mutants: list[Mutant], about: dict[str, Any], out: Path) -> str:
    """Write results.json and report.md; return the table."""
    saved = [asdict(each) | {"change": each.change} for each in mutants]
    for each in saved:
        each["chosen"] = len(each["tests"])
        del each["source"], each["last"]
        if each["outcome"] in CAUGHT:
            del each["tests"]
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_text(json.dumps(about | {"mutants": saved}, indent=1))
    tops = [top for top in PACKAGES if any(each.path.startswith(f"{top}/") for each in mutants)]
    rows = [("package", *ORDER), ("---",) * (len(ORDER) + 1)]
    for top in (*tops, "all"):
        counts = Counter(each.outcome for each in mutants if top == "all" or each.path.startswith(f"{top}/"))
        rows.append((top, *(str(counts[outcome]) for outcome in ORDER)))
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    text = [f"# Mutants\n\n{json.dumps(about)}\n\n{table}"]
    for outcome in ("survived", "no test", "unclear", "timed out"):
        for each in mutants:
            if each.outcome == outcome:
                text.append(_told(each))
    (out / "report.md").write_text("\n\n".join(text) + "\n")
    return table


def _told(mutant: Mutant) -> str:
    diff = "\n".join(line for line in mutant.diff[2:] if line)
    head = f"## {mutant.outcome}: {mutant.path}:{mutant.line} ({mutant.operator})\n\n```diff\n{diff}\n```"
    if mutant.error:
        head += f"\n\n{mutant.by} {mutant.error}".rstrip()
    ran = Counter(test.partition("[")[0] for test in mutant.tests)
    by_file: dict[str, list[str]] = {}
    for function, cases in ran.items():
        name = function.partition("::")[2]
        by_file.setdefault(file_of(function), []).append(name if cases == 1 else f"{name} ({cases})")
    lines = [f"- {file}: {', '.join(names)}" for file, names in by_file.items()]
    return f"{head}\n\n{mutant.covering} tests cover it, {len(mutant.tests)} chosen:\n\n" + "\n".join(lines)


def _pytest(record: Path) -> list[str]:
    # hypothesis' profile ci has no deadline and draws the same examples each time
    plain = [
        "-q",
        "-m",
        "not slow",
        "-p",
        "mutants_plugin",
        "-p",
        "no:cacheprovider",
        "--hypothesis-profile=ci",
    ]
    return [sys.executable, "-m", "pytest", *plain, f"--mutants-record={record}"]


def _environment(root: Path, *more: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (root, *more, HERE)))}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cores = os.cpu_count() or 1
    add = parser.add_argument
    add("--root", type=Path, default=Path(), help="checkout to change and test (default: the current folder)")
    add("--out", type=Path, help="folder of coverage and results (default: ROOT/build/mutants)")
    add("--tests", nargs="*", default=[], help="measure and run only these files and folders of tests")
    add("--keep-coverage", action="store_true", help="use the coverage that is there")
    add("--without-rest", action="store_true", help="use only the tests of `make test`")
    add("--list", action="store_true", help="list the files with their places to change, and run nothing")
    add("--again", type=Path, help="results.json: its mutants that were not caught, instead of a sample")
    add("--seed", type=int, default=1)
    add("--count", type=int, default=150, help="mutants (%(default)s)")
    add("--limit", type=float, default=60, help="seconds a mutant; half of it for the tests (%(default)s)")
    add("--minutes", type=float, default=120, help="no mutant is begun later (%(default)s)")
    add("--workers", type=int, default=cores, help="processes at once (cores: %(default)s)")
    options = parser.parse_args()
    options.root = options.root.resolve()
    options.memory = 4 << 40
    if sys.platform == "linux":
        options.memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // options.workers
    if options.list:
        for path, count in sorted(places(options.root).items()):
            print(f"{count:6} places {path}")
        return
    out = (options.out or options.root / "build" / "mutants").resolve()
    begin = time.monotonic()
    if options.again:
        mutants = again(options.root, options.again)
    else:
        mutants = sample(options.root, seed=options.seed, count=options.count)
    if not options.keep_coverage:
        measure(options.root, out, options.tests, options.workers)
    options.minutes -= (time.monotonic() - begin) / 60
    used = options.tests or ["those of `make test`" if options.without_rest else "all"]
    about = {"seed": options.seed, "count": len(mutants), "tests": used}
    covered = Covered(options.root, out, without_rest=options.without_rest)
    judge_all(mutants, covered, options, lambda: report(mutants, about, out))
    about["minutes"] = round((time.monotonic() - begin) / 60, 1)
    print(report(mutants, about, out))


if __name__ == "__main__":
    main()
