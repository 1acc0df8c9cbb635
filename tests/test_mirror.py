"""Each network is written twice under the same names: both sides are compared as syntax trees."""

import ast
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.sides import SIDES

ROOT = Path(__file__).parent.parent

# file or folder/ that only one side has → why
ALONE = {
    "mlx_port/commands/": "the `mlx-port` command: no part of a side",
    "mlx_port/runtime/": "MLX's BLAS, arithmetic and memory are the process's; torch has device.py",
    "mlx_port/steps/": "steps built once, for every device; torch_ref's plain slots run the layers",
    "mlx_port/kernels/": "of MLX's steps; torch has torch_ref/cuda",
    "mlx_port/stored*.py": "converted folders, also the embedded voice's; torch_ref reads published layouts",
    "torch_ref/device.py": "torch has several devices, each with its dtypes and memory; MLX one",
    "torch_ref/limits/": "what torch's backends cannot do, what does it in their place, and how cuDNN rounds",
    "torch_ref/integrations/": "diffusers is torch's",
    "torch_ref/cuda/": "captured steps and their kernels",
    "torch_ref/cpu/": "products and steps for CPUs; MLX's steps run everywhere",
}
# file:class or file:function, or file:class.method (of __init__ also the attributes) → why they differ
DIFFERENT = {
    "layers/conv.py:*": "torch's own layers with all their arguments, cut to the device's limits",
    "layers/lstm.py:LSTM": "torch's own layer, its cells unrolled where a device's is not trusted",
    "loading.py:*": "torch_ref reads published layouts, the codec apart from them, and chooses a device",
    "pipelines.py:load": "arguments of loading.py",
    "batch.py:RunningBatch.__init__": "MLX counts steps, after some of which unused memory is freed",
    "dia/decoder.py:DiaDecoder.__init__": "MLX runs forms that are built once, with and without guidance",
    "dia2/decoder.py:Dia2Decoder.__init__": "MLX runs forms that are built once",
    "mars5/decoder.py:Mars5Decoder.__init__": "MLX runs forms that are built once, and keeps rotations",
    "qwen3/decoder.py:Qwen3Decoder.__init__": "MLX's form that is built once has the ids that may be drawn",
}


def files(side: str) -> dict[str, ast.Module]:
    return {
        str(path.relative_to(ROOT / side)): ast.parse(path.read_text())
        for path in sorted((ROOT / side).rglob("*.py"))
    }


TREES = {side: files(side) for side in SIDES.values()}
COMMON = sorted(TREES["torch_ref"].keys() & TREES["mlx_port"].keys())


def parameters(function: ast.FunctionDef) -> list[str]:
    spec = function.args
    names = [argument.arg for argument in (*spec.posonlyargs, *spec.args)]
    return [*names, "*", *(argument.arg for argument in spec.kwonlyargs)]


def functions(body: list[ast.stmt]) -> dict[str, ast.FunctionDef]:
    """In order; torch's `forward` is MLX's `__call__`."""
    found = (node for node in body if isinstance(node, ast.FunctionDef))
    return {"__call__" if node.name == "forward" else node.name: node for node in found}


def classes(tree: ast.Module) -> dict[str, ast.ClassDef]:
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def attributes(owner: ast.ClassDef) -> list[str]:
    """Fields of a dataclass, and what __init__ sets on self or registers as a buffer, in order."""
    fields = [ast.unparse(node.target) for node in owner.body if isinstance(node, ast.AnnAssign)]
    start = functions(owner.body).get("__init__")
    if start is None:
        return fields
    own = []
    for node in ast.walk(start):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and ast.unparse(node.value) == "self"
        ):
            own.append((node.lineno, node.col_offset, node.attr))
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "self.register_buffer":
            own.append((node.lineno, node.col_offset, ast.literal_eval(node.args[0])))
    return [name for _, _, name in sorted(own)]


def pattern(listed: str) -> str:
    """Of the files that a key of ALONE names."""
    return f"{listed}*" if listed.endswith("/") else listed


class Difference(NamedTuple):
    """What the sides have under one name. where: as in DIFFERENT."""

    where: str
    torch_side: object
    mlx_side: object

    @property
    def excused(self) -> list[str]:
        """Keys of DIFFERENT for it, its class or its function."""
        return [
            key for key in DIFFERENT if fnmatchcase(self.where, key) or fnmatchcase(self.where, f"{key}.*")
        ]


def public(names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith("__") or not name.startswith("_")]


def compared(file: str) -> Iterator[Difference]:
    """Everything that both sides should have alike."""
    owners = [classes(TREES[side][file]) for side in SIDES.values()]
    yield Difference(file, *map(public, owners))
    for name in [name for name in owners[0] if name in owners[1]]:
        where, methods = f"{file}:{name}", [functions(side[name].body) for side in owners]
        yield Difference(where, *map(public, methods))
        yield Difference(f"{where}.__init__", *(attributes(side[name]) for side in owners))
        for method in methods[0].keys() & methods[1].keys():
            yield Difference(f"{where}.{method}", *(parameters(side[method]) for side in methods))
    found = [functions(TREES[side][file].body) for side in SIDES.values()]
    yield Difference(file, *map(public, found))
    for name in public(found[0].keys() & found[1].keys()):
        yield Difference(f"{file}:{name}", *(parameters(side[name]) for side in found))


def differences(file: str) -> list[Difference]:
    return [one for one in compared(file) if one.torch_side != one.mlx_side]


@pytest.mark.parametrize("file", COMMON)
def test_the_same_classes_methods_attributes_functions_and_parameters(file):
    """In the same order."""
    assert [one for one in differences(file) if not one.excused] == []


def test_what_is_listed_as_different_is():
    used = {key for file in COMMON for one in differences(file) for key in one.excused}
    assert used == DIFFERENT.keys()


def test_files_of_one_side_only_have_a_reason():
    unpaired = [f"{side}/{file}" for side in SIDES.values() for file in TREES[side].keys() - set(COMMON)]
    assert [file for file in unpaired if not any(fnmatchcase(file, pattern(key)) for key in ALONE)] == []


@pytest.mark.parametrize("listed", ALONE)
def test_what_is_listed_as_alone_is(listed):
    here, there = sorted(SIDES.values(), key=lambda side: not listed.startswith(f"{side}/"))
    assert any(fnmatchcase(f"{here}/{file}", pattern(listed)) for file in TREES[here])
    assert not any(fnmatchcase(f"{here}/{file}", pattern(listed)) for file in TREES[there])


def test_exceptions_are_few():
    """Those of the running batch and its decoders are counted apart, and name what they are for."""
    batch = [key for key in DIFFERENT if key.partition(":")[0].endswith(("batch.py", "decoder.py"))]
    assert not any("*" in key for key in batch)
    assert len(batch) <= 15
    assert len(ALONE) + len(DIFFERENT) - len(batch) <= 15
