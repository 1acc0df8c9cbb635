"""Each network is written twice under the same names: both sides are compared as syntax trees."""

import ast
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SIDES = ("torch_ref", "mlx_port")

# file, folder/ or file:name that only one side has → why
ALONE = {
    "mlx_port/commands/": "the `mlx-port` command: no part of a side",
    "torch_ref/device.py": "device and dtype policy: MLX has one device",
    "torch_ref/limits/": "what torch's backends cannot do",
    "torch_ref/integrations/": "diffusers is torch's",
    "torch_ref/loading.py:fill": "also used to fill single networks in tests; MLX's is one call",
    "torch_ref/loading.py:How": "arguments of its load, for the overloads of models",
    "torch_ref/layers/selection.py": "mx.argmax is right on every backend",
    "torch_ref/layers/norm.py:at_least_float32": "MLX's fast norm accumulates in float32 by itself",
    "torch_ref/cuda/": "captured steps and their kernels",
    "torch_ref/cpu/": "products and steps for CPUs; MLX's steps run everywhere",
    "torch_ref/dia/engine.py:make_slots": "chooses a form; MLX has one for every device",
    "torch_ref/dia2/engine.py:make_slots": "chooses a form; MLX has one for every device",
    "mlx_port/steps/": "steps built once, for every device; torch_ref's plain slots run the layers",
    "torch_ref/mars5/reverse.py:to_device": "MLX has one device",
    "mlx_port/memory.py:wants_wired": "macOS's memory; torch has no such setting",
    "mlx_port/memory.py:wire": "macOS's memory; torch has no such setting",
    "mlx_port/memory.py:bound_cache": "MLX's unused memory; torch bounds its own",
    "mlx_port/arithmetic.py": "a variable of MLX; torch has torch_ref/cuda/precision.py",
    "mlx_port/kernels/": "of MLX's step; torch has torch_ref/cuda",
    "mlx_port/metavoice/sampling.py:drawing": "compiled; torch captures the whole step",
    "mlx_port/blas.py": "loaded before MLX; torch contains a fast BLAS",
    "mlx_port/before_mlx.py": "loads it",
    "mlx_port/stored.py": "converted folders; torch_ref's are read by converters",
    "mlx_port/api.py:converted_voice": "torch_ref reads the published layout directly",
    "mlx_port/api.py:voice_folders": "part of converted_voice",
    "mlx_port/mars5/encoder.py:some_rows": "of a quantised layer; torch_ref dequantises",
}
# file:class or file:function → why methods, attributes or parameters differ
DIFFERENT = {
    **dict.fromkeys(
        ["memory.py:reset_peak", "memory.py:peak_bytes", "memory.py:free_bytes", "memory.py:backend_name"],
        "torch has several devices, MLX the default one",
    ),
    "layers/conv.py:Conv1d": "torch's own layer, its call cut to the device's limits",
    "layers/conv.py:ConvTranspose1d": "torch's own layer, its call cut to the device's limits",
    "layers/conv.py:conv1d": "torch has groups, and a limit on sizes",
    "layers/conv.py:conv_transpose1d": "torch has groups and output padding, and a limit on sizes",
    "layers/lstm.py:LSTM": "torch's own layer, its cells unrolled where a device's is not trusted",
    **dict.fromkeys(
        ["loading.py:load", "loading.py:open_parts", "loading.py:open_networks"],
        "torch_ref reads published layouts, the codec apart from them, and chooses a device",
    ),
    **dict.fromkeys(
        ["codecs/dac.py:Dac", "codecs/encodec.py:Encodec", "codecs/mimi.py:Mimi", "codecs/vocos.py:Vocos"],
        "torch chooses how cuDNN rounds",
    ),
    **dict.fromkeys(
        ["dia/slots.py:Slots", "dia2/slots.py:Slots"], "MLX runs forms that are built once: mlx_port/steps"
    ),
    **dict.fromkeys(
        ["metavoice/slots.py:Slots", "mars5/slots.py:Slots"],
        "MLX runs joined weights for single ids",
    ),
    "dia2/pipeline.py:Dia2Pipeline": "torch_ref reads published layouts, and chooses a device",
    "dia/pipeline.py:DiaPipeline": "torch_ref reads published layouts, and chooses a device",
    "metavoice/pipeline.py:MetaVoicePipeline": "torch_ref reads published layouts, and chooses a device",
    "mars5/pipeline.py:Mars5Pipeline": "torch_ref reads published layouts, and chooses a device",
    "loading.py:Parts": "torch_ref's are read by converters, MLX's from folders with their own dtypes",
}


def files(side: str) -> dict[str, ast.Module]:
    return {
        str(path.relative_to(ROOT / side)): ast.parse(path.read_text())
        for path in sorted((ROOT / side).rglob("*.py"))
    }


TREES = {side: files(side) for side in SIDES}
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


def is_public(name: str) -> bool:
    return name.startswith("__") or not name.startswith("_")


def shared(side: str, file: str, names: Iterable[str]) -> list[str]:
    """Public names without those that only this side has."""
    return [name for name in names if is_public(name) and f"{side}/{file}:{name}" not in ALONE]


def same(where: str, torch_side: object, mlx_side: object) -> None:
    assert torch_side == mlx_side, where


@pytest.mark.parametrize("file", COMMON)
def test_the_same_classes_in_the_same_order(file):
    same(file, *(shared(side, file, classes(TREES[side][file])) for side in SIDES))


@pytest.mark.parametrize("file", COMMON)
def test_the_same_methods_and_attributes(file):
    both = [classes(TREES[side][file]) for side in SIDES]
    for name in [name for name in both[0] if name in both[1] and f"{file}:{name}" not in DIFFERENT]:
        owners = [side[name] for side in both]
        methods = [functions(owner.body) for owner in owners]
        same(
            f"{file}:{name}",
            *([name for name in side if is_public(name)] for side in methods),
        )
        same(f"{file}:{name}, attributes", *map(attributes, owners))
        for method in methods[0].keys() & methods[1].keys():
            same(f"{file}:{name}.{method}", *(parameters(side[method]) for side in methods))


@pytest.mark.parametrize("file", COMMON)
def test_the_same_public_functions(file):
    both = [functions(TREES[side][file].body) for side in SIDES]
    names = [shared(side, file, found) for side, found in zip(SIDES, both, strict=True)]
    same(file, *names)
    for name in [name for name in names[0] if f"{file}:{name}" not in DIFFERENT]:
        same(f"{file}:{name}", *(parameters(side[name]) for side in both))


def test_files_of_one_side_only_have_a_reason():
    unpaired = [f"{side}/{file}" for side in SIDES for file in TREES[side].keys() - set(COMMON)]
    listed = tuple(path for path in ALONE if ":" not in path)
    assert [file for file in unpaired if not file.startswith(listed)] == []


@pytest.mark.parametrize("listed", ALONE)
def test_what_is_listed_as_alone_is(listed):
    path, _, name = listed.partition(":")
    side, _, file = path.partition("/")
    other = SIDES[1 - SIDES.index(side)]
    if name:
        found = [{**classes(TREES[at][file]), **functions(TREES[at][file].body)} for at in (side, other)]
        assert name in found[0]
        assert name not in found[1]
    else:
        assert any(known.startswith(file) for known in TREES[side])
        assert not any(known.startswith(file) for known in TREES[other])
