"""Who may import whom: read from the syntax trees, then tried with the other framework missing."""

import ast
import functools
import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
OURS = ("tts_core", "torch_ref", "mlx_port", "converters")
FRAMEWORKS = ("mlx", "torch")
MODELS = ("dia", "mars5", "metavoice")

ARROWS = {
    "tts_core": set(),
    "converters": {"tts_core"},
    "torch_ref": {"tts_core", "converters", "torch"},
    "mlx_port": {"tts_core", "mlx"},
}
# inside functions only: what is imported when it is needed
LATE = {
    "converters": {"mlx", "torch"},  # mlx writes bfloat16 and quantised tensors, torch reads pickles
    "mlx_port.api": {"converters"},  # converts the embedded voice on first use
    "mlx_port.commands": {"torch_ref", "converters"},  # --backend torch, convert, verify runs both sides
}

NETWORK = {
    "socket",
    "ssl",
    "urllib",
    "http",
    "ftplib",
    "requests",
    "httpx",
    "aiohttp",
    "posthog",
    "sentry_sdk",
}


class Import(NamedTuple):
    """One import statement: where, of what, and the function that it stands in, if any."""

    module: str
    line: int
    target: str
    function: str | None

    @property
    def place(self) -> str:
        return f"{self.module}, line {self.line}: import of {self.target}"


def modules(package: str) -> Iterator[tuple[str, Path]]:
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@functools.cache
def imports(package: str) -> list[Import]:
    return [found for module, path in modules(package) for found in _imports(tree(path), module, None)]


def _imports(node: ast.AST, module: str, function: str | None) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for name in child.names:
                yield Import(module, child.lineno, name.name, function)
        elif isinstance(child, ast.ImportFrom):
            yield Import(module, child.lineno, "." * child.level + (child.module or ""), function)
        elif isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        elif isinstance(
            child, ast.stmt | ast.excepthandler | ast.match_case
        ):  # nothing else holds statements
            inside = child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else function
            yield from _imports(child, module, inside)


def allowed(found: Import) -> bool:
    package, top = found.module.partition(".")[0], found.target.partition(".")[0]
    if top in {package} | ARROWS[package] or top not in OURS + FRAMEWORKS:
        return True
    late = [
        tops for module, tops in LATE.items() if (found.module + ".").startswith((module + ".", module + "_"))
    ]
    return found.function is not None and any(top in tops for tops in late)


@pytest.mark.parametrize("package", OURS)
def test_arrows(package):
    assert [found.place for found in imports(package) if not allowed(found)] == []


@pytest.mark.parametrize("package", OURS)
def test_imports_are_absolute(package):
    assert [found.place for found in imports(package) if found.target.startswith(".")] == []


@pytest.mark.parametrize("package", ["torch_ref", "mlx_port"])
def test_layers_then_codecs_then_models(package):
    lower = {"layers": ["codecs", *MODELS], "codecs": list(MODELS)}
    lower |= {model: [other for other in MODELS if other != model] for model in MODELS}
    wrong = [
        found.place
        for found in imports(package)
        for part in found.module.split(".")[1:2]
        for above in lower.get(part, [])
        if (found.target + ".").startswith(f"{package}.{above}.")
    ]
    assert wrong == []


def test_the_hub_is_all_of_the_network_and_nothing_runs_a_shell():
    """No telemetry and no addresses fetched: the one way out is the hub's client, in one module."""
    found = [each for package in OURS for each in imports(package)]
    assert [each.place for each in found if each.target.partition(".")[0] in NETWORK] == []
    assert {each.module for each in found if each.target.startswith("huggingface_hub")} == {
        "converters.files.hub"
    }
    shells = [
        f"{module}, line {call.lineno}"
        for package in OURS
        for module, path in modules(package)
        for call in ast.walk(tree(path))
        if isinstance(call, ast.Call)
        and (
            any(keyword.arg == "shell" for keyword in call.keywords)
            or (
                isinstance(call.func, ast.Attribute)
                and ast.unparse(call.func) in ("os.system", "os.popen", "subprocess.getoutput")
            )
        )
    ]
    assert shells == []


def test_only_the_voice_converter_imports_converters_in_the_api():
    found = {
        found.function
        for found in imports("mlx_port")
        if found.module == "mlx_port.api" and "converters" in found.target
    }
    assert len(found) <= 1


BLOCK = """
import importlib, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
"""


def run_without(blocked: tuple[str, ...], code: str) -> str:
    """Run code in a fresh interpreter in which these packages cannot be imported. Returns what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", BLOCK.format(blocked=blocked) + code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("package", ["tts_core", "converters"])
def test_every_module_imports_without_a_framework(package):
    run_without(FRAMEWORKS, import_all(package))


def import_all(package: str) -> str:
    names = [module for module, _ in modules(package)]
    return f"for name in {names!r}: importlib.import_module(name)\n"


@pytest.mark.parametrize(("package", "blocked"), [("torch_ref", "mlx"), ("mlx_port", "torch")])
def test_each_side_imports_and_speaks_without_the_other_framework(package, blocked):
    """Every module in one process, and the embedded voice says there what it says here."""
    code = f"import {package}; print({package}.generate('Hello.', max_frames=4, seed=1).codes.tolist())"
    said = run_without((blocked, "transformers"), import_all(package) + code)
    here = importlib.import_module(package).generate("Hello.", max_frames=4, seed=1)
    assert here.samples > 0
    assert json.loads(said) == here.codes.tolist()
