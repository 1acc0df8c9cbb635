"""Docstrings, comments and documents name existing files and modules, and their examples are complete."""

import ast
import importlib
import inspect
import io
import re
import subprocess
import textwrap
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("tts_core", "torch_ref", "mlx_port", "converters")
TREES = (*PACKAGES, "tests", "benchmarks", "examples")
PATH = re.compile(rf"(?<![\w./-])(?:{'|'.join((*TREES, 'docs'))})/[\w./-]*\w/?(?![\w<*{{])")
BARE = re.compile(r"(?<![\w./@*<{-])(?:[\w-]+/)*([\w-]+\.(?:py|toml))\b(?![\w(@])")
# files of other projects, which docstrings cite, and the reader's own adapter
OTHERS = {"diffusion_schedule.py", "fast_model.py", "loss.py", "lowpass.py", "model.py", "my_port.py"}
OTHERS |= {"multibanddiffusion.py", "non_causal.py", "spectral_ops.py", "unet.py"}
MODULE = re.compile(rf"(?<![\w./])(?:{'|'.join((*PACKAGES, 'benchmarks', 'examples'))})(?:\.\w+)+")
# a line's end: half of a path, of owner/name@commit, of a hyphenated name before a path, of a [--flag VALUE]
CUT = re.compile(r"[\w)]/$|[\w/-]@$|\w-\n\w+/|\[--?\w[\w-]*$")


@cache
def files() -> frozenset[str]:
    """Files of the repository and their folders."""
    found = [path for tree in (*TREES, "docs") for path in (ROOT / tree).rglob("*")]
    return frozenset(str(path.relative_to(ROOT)) for path in found if "__pycache__" not in path.parts)


def docstrings(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def comments(source: str) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


@cache
def texts(tree: str) -> list[tuple[str, str]]:
    """(file, text) of each docstring and comment."""
    sources = {path: path.read_text("utf-8") for path in sorted((ROOT / tree).rglob("*.py"))}
    return [
        (str(path.relative_to(ROOT)), text)
        for path, source in sources.items()
        for text in (*docstrings(source), *comments(source))
    ]


def documents() -> Iterator[tuple[str, str]]:
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")):
        yield str(path.relative_to(ROOT)), path.read_text("utf-8")


@cache
def names() -> frozenset[str]:
    return frozenset(path.rpartition("/")[2] for path in files()) | {path.name for path in ROOT.iterdir()}


def strange_paths(text: str) -> list[str]:
    """Paths from the root that lead nowhere, and names of files that no folder has."""
    found = [match.rstrip("/") for match in PATH.findall(text)]
    bare = [name for name in BARE.findall(text) if name not in names() | OTHERS]
    return bare + [path for path in found if path not in files() and not ignored(path)]


def ignored(path: str) -> bool:
    """Data that is not committed, or written by a command."""
    return subprocess.run(["git", "check-ignore", "-q", path], cwd=ROOT, check=False).returncode == 0


def strange_modules(text: str) -> list[str]:
    return [name for name in MODULE.findall(text) if not known(name)]


def known(name: str) -> bool:
    """Check for a module, or a module and a name defined in it."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        base = ROOT.joinpath(*parts[:count])
        file = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
        if base.is_dir() and count == len(parts):
            return True
        if file.is_file():
            return count == len(parts) or re.search(rf"\b{parts[count]}\b", file.read_text()) is not None
    return False


def examples(text: str) -> Iterator[str]:
    """Indented blocks of Python: those that import."""
    for block in re.findall(r"(?m)(?:^ {4}.*\n|^\n(?= {4}))+", text + "\n"):
        code = textwrap.dedent(block).strip("\n")
        if re.match(r"(?:from [\w.]+ import |import )", code):
            yield code


@pytest.mark.parametrize("tree", TREES)
def test_named_files_and_modules_are_there(tree):
    found = [(file, strange_paths(text) + strange_modules(text)) for file, text in texts(tree)]
    assert [row for row in found if row[1]] == []


def test_documents_name_files_that_are_there():
    found = [(file, strange_paths(text) + strange_modules(text)) for file, text in documents()]
    assert [row for row in found if row[1]] == []


@pytest.mark.parametrize("tree", TREES)
def test_no_line_ends_within_a_path(tree):
    found = [(file, line) for file, text in texts(tree) for line in cut_lines(text)]
    assert found == []


def cut_lines(text: str) -> list[str]:
    lines = text.split("\n")
    return [
        line
        for line, following in zip(lines, [*lines[1:], ""], strict=True)
        if CUT.search(line) or CUT.search(f"{line}\n{following.strip()}")
    ]


@pytest.mark.parametrize("tree", PACKAGES)
def test_examples_can_be_read_by_python(tree):
    for file, text in texts(tree):
        for code in examples(text):
            try:
                compile(code, file, "exec")
            except SyntaxError as fault:
                pytest.fail(f"{file}: {fault}\n{code}")


def test_the_example_of_the_diffusers_module():
    """Every name in it is imported, or the reader's own pipeline."""
    text = ast.get_docstring(ast.parse((ROOT / "torch_ref/integrations/diffusers.py").read_text()))
    [code] = examples(text or "")
    tree = ast.parse(code)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    imported = {one.name for node in tree.body if isinstance(node, ast.ImportFrom) for one in node.names}
    assert names - imported == {"pipeline"}
    assert [ast.unparse(node) for node in tree.body if isinstance(node, ast.Expr)] == [
        "install(pipeline)",
        "install(pipeline.unet, AttentionPolicy(budget_bytes=64 * 2 ** 20, native=False))",
        "uninstall(pipeline)",
    ]


def undocumented(module: str) -> Iterator[str]:
    """Public methods that a class introduces without a docstring."""
    for name, made in inspect.getmembers(importlib.import_module(module), inspect.isclass):
        if made.__module__ != module or name.startswith("_"):
            continue
        fields = inspect.get_annotations(made)
        for method, found in [*vars(made).items()]:
            known = getattr(found, "fget", None) or getattr(found, "__func__", found)
            if (
                method.startswith("_")
                or method in fields
                or not inspect.isfunction(known)
                or known.__module__ != module
            ):
                continue
            if not known.__doc__ and not any(hasattr(base, method) for base in made.__mro__[1:]):
                yield f"{module}.{name}.{method}"


def test_methods_say_what_they_do_once():
    """Methods of networks do what their class says; those of a protocol inherit its words."""
    networks = r"mlx_port\.(codecs|dia2?|layers|mars5|metavoice|qwen3|steps)\."
    found = [file for file in sorted(files()) if re.match(r"(tts_core|mlx_port|converters)/.*\.py", file)]
    modules = [file.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for file in found]
    missing = [name for module in modules if not re.match(networks, module) for name in undocumented(module)]
    assert missing == []


ITEM = re.compile(r"((?<=[.;:]) +|^ *)((?:`?[a-z_]\w*`?, )*`?[a-z_]\w*`?): ", re.MULTILINE)
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


def given(node: ast.AST) -> set[str]:
    """Names that a docstring may list: parameters, fields, attributes and properties."""
    if isinstance(node, FUNCTIONS):
        spec = node.args
        found = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs, spec.vararg, spec.kwarg]
        return {one.arg for one in found if one is not None}
    assert isinstance(node, ast.ClassDef)
    names = {ast.unparse(one.target) for one in node.body if isinstance(one, ast.AnnAssign)}
    for method in (one for one in node.body if isinstance(one, FUNCTIONS)):
        names |= given(method) if method.name == "__init__" else {method.name}
    stored = (one for one in ast.walk(node) if isinstance(one, ast.Attribute))
    return names | {one.attr for one in stored if ast.unparse(one.value) == "self"}


def run_together(node: ast.AST, text: str) -> list[str]:
    """List what shares a line with other parameters, where there are three or more."""
    names = given(node)
    found = [one for one in ITEM.finditer(text) if {*re.findall(r"\w+", one[2])} <= names]
    if len(found) < 3:
        return []
    return [one[2] for one in found if text[: one.start(2)].rpartition("\n")[2].strip()]


def documented(tree: str) -> Iterator[tuple[str, ast.AST, ast.AST, str]]:
    """Give (place, owner, node, docstring) of each class and function."""
    for path in sorted((ROOT / tree).rglob("*.py")):
        for owner in ast.walk(ast.parse(path.read_text("utf-8"))):
            for node in ast.iter_child_nodes(owner):
                if isinstance(node, ast.ClassDef | FUNCTIONS) and (text := ast.get_docstring(node)):
                    yield f"{path.relative_to(ROOT)}: {node.name}", owner, node, text


@pytest.mark.parametrize("tree", PACKAGES)
def test_three_parameters_have_a_line_each(tree):
    found = {place: run_together(node, text) for place, _, node, text in documented(tree)}
    assert {place: names for place, names in found.items() if names} == {}


@pytest.mark.parametrize("tree", PACKAGES)
def test_methods_do_not_refer_to_the_ones_that_they_override(tree):
    """Without words of their own they inherit the others'."""
    found = [
        place
        for place, owner, _, text in documented(tree)
        if isinstance(owner, ast.ClassDef)
        for one in re.findall(r"\b[Aa]s in ([A-Z]\w+)", text)
        if text.startswith("As in ") or one in {ast.unparse(base).partition("[")[0] for base in owner.bases}
    ]
    assert found == []
