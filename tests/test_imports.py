"""Who may import whom: read from the syntax trees, then tried with other frameworks and models missing."""

import ast
import importlib
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
OURS = ("tts_core", "torch_ref", "mlx_port", "converters")
FRAMEWORKS = ("mlx", "torch")
MODELS = tuple(sorted(facts.parent.name for facts in (ROOT / "tts_core").glob("*/model.py")))

ARROWS = {
    "tts_core": set(),
    "converters": {"tts_core"},
    "torch_ref": {"tts_core", "converters", "torch"},
    "mlx_port": {"tts_core", "mlx"},
}
# inside functions only: what is imported when it is needed
LATE = {
    "converters": {"mlx"},  # quantizes
    "mlx_port.stored_voice": {"converters"},  # converts the embedded voice on first use
    "mlx_port.stored_published": {"converters"},  # reads published parts through their maps
    "mlx_port.from_hub": {"converters"},  # converts a hub id on first use
    "mlx_port.commands": {"torch_ref", "converters"},  # --backend torch, convert, verify runs both sides
}
# modules and folders of a package from the lowest floor to the highest: imports go down, or stay on a floor
FLOORS: dict[str, list[Iterable[str]]] = {
    "tts_core": [
        ("extras", "printable"),
        ("errors",),
        ("command", "files"),
        ("shapes",),
        ("config", "models", "options"),
        ("exports",),
        ("audio", "memory", "nn", "processes", "text", "voice"),
        ("pipeline", "prompt", "results", "serving", "speed"),
        ("bulk", "judges"),
        ("codecs", "speaking"),
        MODELS,
        ("doors",),
    ],
    "converters": [
        ("files",),
        ("rules",),
        ("maps",),
        ("part",),
        ("candidates",),
        ("search",),
        ("published",),
        ("card", "summary", "tensors"),
        ("convert",),
        ("cache",),
        ("cli",),
    ],
    "torch_ref": [
        ("layers", "limits", "sampling"),  # layers ask the rules; some of the rules' own tools run layers
        ("cpu", "cuda"),
        ("device", "guard", "host", "reading"),
        ("from_hub",),
        ("batch", "loading", "watch"),
        ("codecs",),
        MODELS,
        ("api", "doctor", "integrations", "pipelines"),
    ],
    "mlx_port": [
        ("runtime",),
        ("kernels",),
        ("layers", "sampling"),
        ("steps",),
        ("from_hub", "guard", "host", "reading", "stored", "stored_published", "stored_voice"),
        ("batch", "loading", "watch"),
        ("codecs",),
        MODELS,
        ("api", "doctor", "pipelines"),
        ("commands",),
    ],
}
TYPES = "TYPE_CHECKING"
# these import models in functions, each when it is looked up by its name
DOORS = ("tts_core.models", "tts_core.options", "converters.maps.table")
# modules that compute the name of a module that they import
COMPUTED = {
    "tts_core.models": "a codec, a model's functions, and a network's class on a side",
    "mlx_port.loading": "a model's pipeline on this side",
    "torch_ref.loading": "a model's pipeline on this side, and its captured forms",
    "mlx_port.commands.opening": "a side",
    "mlx_port.commands.main": "a command, of the table of commands",
    "tts_core.exports": "the home of an exported name, of a package's table",
    "tts_core.command.start": "a program, of the caller",
    "tts_core.audio.formats.writer": "an encoder, of the table of formats",
}
# distributions under another name than the module's
MODULES = {"pyyaml": "yaml"}
OPTIONAL = {
    "torch",
    "mlx",
    "sounddevice",
    "diffusers",
    "av",
    "onnxruntime",
    "pocketsphinx",
    "faster_whisper",
    "mlx_whisper",
    "ray",
    "starlette",
    "pydantic",
    "pydantic_core",
    "anyio",
    "uvicorn",
    "prometheus_client",
    "h11",
    "wyoming",
    "mcp",
    "httpx2",
}  # of extras, or the user's own

NETWORK = {
    "socket",
    "ssl",
    "urllib",
    "http",
    "ftplib",
    "requests",
    "httpx",
    "httpx2",
    "aiohttp",
    "posthog",
    "sentry_sdk",
}


class Import(NamedTuple):
    """One import statement: its module, the imported module, and the enclosing function, if any."""

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


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def every_module() -> frozenset[str]:
    return frozenset(module for package in OURS for module, _ in modules(package))


@cache
def imports(package: str, *, types: bool = False) -> tuple[Import, ...]:
    """Imports of a package. types: also those for types only, as of the function TYPES."""
    return tuple(
        found
        for module, path in modules(package)
        for found in _imports(tree(path), module, None)
        if (types or found.function != TYPES) and not is_looked_up(found)
    )


def is_looked_up(found: Import) -> bool:
    return found.module in DOORS and found.function is not None and model_of(found.target) is not None


def _imports(node: ast.AST, module: str, function: str | None) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            for name in child.names:
                yield Import(module, child.lineno, name.name, function)
        elif isinstance(child, ast.ImportFrom):
            source = "." * child.level + (child.module or "")
            inner = [f"{source}.{name.name}" for name in child.names]
            for target in dict.fromkeys(name if name in every_module() else source for name in inner):
                yield Import(module, child.lineno, target, function)
        elif isinstance(child, ast.If) and ast.unparse(child.test) == TYPES:
            yield from _imports(child, module, TYPES)
        elif isinstance(
            child, ast.stmt | ast.excepthandler | ast.match_case
        ):  # other nodes contain no statements
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


def test_plain_files_import_nothing_captured():
    """`loading` asks for the fastest forms by the model's name, and `compose` is handed them."""
    captured = "torch_ref.cuda"
    plain = [each for each in imports("torch_ref", types=True) if not each.module.startswith(captured)]
    up = [each.place for each in plain if (each.target + ".").startswith(captured + ".")]
    named = [
        module
        for module, path in modules("torch_ref")
        if not module.startswith(captured) and captured in path.read_text()
    ]
    assert (up, named) == ([], ["torch_ref.loading"])


@pytest.mark.parametrize("package", OURS)
def test_imports_are_absolute(package):
    assert [found.place for found in imports(package) if found.target.startswith(".")] == []


def floor(module: str) -> int | None:
    """Number of a module's floor in its package; None for the package itself."""
    package, _, inside = module.partition(".")
    if model_of(module) or inside.startswith(("cuda.batch", "cuda.codecs")):
        inside = re.sub(r"^(cpu|cuda|steps)\.", "", inside)  # models, codecs and the batch in these
    found = [number for number, units in enumerate(FLOORS[package]) if inside.partition(".")[0] in units]
    assert len(found) == 1 or not inside, f"{module}: on {len(found)} floors; give it one in FLOORS"
    return found[0] if inside else None


def test_imports_go_down():
    """Also those inside functions, and those of commands."""
    climbing = set()
    for found in (each for package in OURS for each in imports(package)):
        if (
            found.target in every_module()
            and found.module.partition(".")[0] == found.target.partition(".")[0]
        ):
            start, end = floor(found.module), floor(found.target)
            if start is not None and end is not None and end > start:
                climbing.add((found.module, found.target))
    assert not climbing


def by_name(package: str) -> Iterator[tuple[str, str]]:
    """Modules, and what import_module gives them by a literal name."""
    for module, path in modules(package):
        for call in (node for node in ast.walk(tree(path)) if isinstance(node, ast.Call)):
            if ast.unparse(call.func).rpartition(".")[2] == "import_module":
                [name, *_] = call.args
                if isinstance(name, ast.Constant):
                    yield module, str(name.value)


def test_there_is_no_circle():
    """Among all imports, those in functions, for types and by name too."""
    graph: dict[str, set[str]] = {module: set() for module in every_module()}
    edges = {(each.module, each.target) for package in OURS for each in imports(package, types=True)}
    for module, target in edges | {edge for package in OURS for edge in by_name(package)}:
        if target in graph:
            graph[module].add(target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


def model_of(module: str) -> str | None:
    """The model that a module belongs to, by its folder or by the end of its name."""
    parts = module.split(".")
    owners = {model for model in MODELS if model in parts or parts[-1].endswith(f"_{model}")}
    assert len(owners) < 2, module
    return next(iter(owners), None)


def reached(starts: Collection[str]) -> Mapping[str, str]:
    """Map every module that these modules may import to one that imports it."""
    graph: dict[str, set[str]] = {}
    for found in (each for package in OURS for each in imports(package)):
        graph.setdefault(found.module, set()).add(found.target)
    seen, left = {start: "" for start in starts}, list(starts)
    while left:
        module = left.pop()
        for target in graph.get(module, set()) & every_module() - seen.keys():
            seen[target] = module
            left.append(target)
    return seen


def of_others(model: str) -> set[str]:
    """The modules of other models."""
    return {module for module in every_module() if model_of(module) not in (None, model)}


@pytest.mark.parametrize("model", MODELS)
def test_no_model_needs_another(model):
    """Not even in a function, nor through a module that belongs to no model."""
    found = reached([module for module in every_module() if model_of(module) == model])
    assert {name: found[name] for name in of_others(model) & found.keys()} == {}


def test_a_model_is_reached_only_through_the_doors():
    """A computed name of a module is where a reader's "go to definition" ends."""
    found = {
        module
        for package in OURS
        for module, path in modules(package)
        for call in ast.walk(tree(path))
        if isinstance(call, ast.Call)
        and ast.unparse(call.func) in ("import_module", "importlib.import_module", "__import__")
        and not isinstance(call.args[0], ast.Constant)
    }
    assert found == COMPUTED.keys()


def test_only_commands_import_commands():
    found = [each for each in imports("mlx_port") if (each.target + ".").startswith("mlx_port.commands.")]
    assert [each.place for each in found if not each.module.startswith("mlx_port.commands")] == []


def test_the_hub_is_all_of_the_network_and_nothing_runs_a_shell():
    """No telemetry and no URLs fetched: only the hub's client uses the network, in two modules, and the
    server sets the buffers of connections that it is given. `bench --server` and `mcp --url` connect to what
    their flags name.
    """
    found = [each for package in OURS for each in imports(package)]
    network = {(each.module, each.target) for each in found if each.target.partition(".")[0] in NETWORK}
    assert network == {
        ("mlx_port.commands.serve.live.protocols", "socket"),
        ("mlx_port.commands.bench.load.post", "urllib.parse"),
        ("mlx_port.commands.agents", "httpx2"),
    }
    connecting = {
        module
        for package in OURS
        for module, path in modules(package)
        for each in ast.walk(tree(path))
        if isinstance(each, ast.Attribute) and each.attr in ("open_connection", "create_connection")
    }
    assert connecting == {"mlx_port.commands.bench.load.post"}
    assert {each.module for each in found if each.target.startswith("huggingface_hub")} == {
        "converters.files.hub",
        "converters.files.upload",
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


def test_run_time_dependencies_are_those_that_packages_import():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = [re.split(r"[<>=;\[ ]", wanted)[0] for wanted in project["dependencies"]]
    declared = {MODULES.get(name, name) for name in names}
    found = {each.target.partition(".")[0] for package in OURS for each in imports(package)}
    assert found - declared - OPTIONAL - set(OURS) - sys.stdlib_module_names == set()
    assert declared - found == set()


BLOCK = """
import importlib, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r} or name in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
"""


def test_only_a_units_own_test_knows_its_private_names():
    """The test of a module is tests/<path>/test_<module>.py; others go through public names."""
    found = []
    for file in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in OURS:
                *folders, unit = str(node.module).split(".")
                own = ROOT.joinpath("tests", *folders, f"test_{unit}.py")
                found += [
                    (file.name, each.name) for each in node.names if each.name[0] == "_" and file != own
                ]
    assert not found


def run_without(blocked: Collection[str], code: str) -> str:
    """Run code in a fresh interpreter that cannot import these packages and modules; return its output."""
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


@pytest.mark.rest
@pytest.mark.torch
@pytest.mark.parametrize("model", MODELS)
def test_every_module_of_a_model_imports_without_the_others(model):
    names = sorted(module for module in every_module() if model_of(module) == model)
    looked_up = f"from tts_core import models, options\nmodels.MODELS[{model!r}].code()\n"
    looked_up += f"assert models.MODELS[{model!r}].options is options.options_class({model!r})\n"
    run_without(of_others(model), f"{looked_up}for name in {names!r}: importlib.import_module(name)")


@pytest.mark.rest
@pytest.mark.torch
@pytest.mark.parametrize(("package", "blocked"), [("torch_ref", "mlx"), ("mlx_port", "torch")])
def test_each_side_imports_and_speaks_without_the_other_framework(package, blocked):
    """Import every module in one process; the embedded voice speaks the same there."""
    code = f"import {package}; print({package}.generate('Hello.', max_frames=4, seed=1).codes.tolist())"
    said = run_without((blocked, "transformers"), import_all(package) + code)
    here = importlib.import_module(package).generate("Hello.", max_frames=4, seed=1)
    assert here.samples > 0
    assert json.loads(said) == here.codes.tolist()
