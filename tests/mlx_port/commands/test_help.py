"""Help: what it imports, and that it names every command and flag."""

import json
import subprocess
import sys
from dataclasses import fields

import click
import pytest

from mlx_port.commands import main as cli
from mlx_port.commands.generate import generate
from tts_core.models import NAMES
from tts_core.options import info, options_class

OURS = ("converters", "mlx_port", "torch_ref", "tts_core")
# what every command imports of ours, and what one needs besides for its flags and their help
COMMON = {
    "mlx_port",
    "mlx_port.runtime",
    "mlx_port.runtime.arithmetic",
    "mlx_port.runtime.before_mlx",
    "mlx_port.commands",
    "mlx_port.commands.main",
    "tts_core",
    "tts_core.command",
    "tts_core.command.runner",
    "tts_core.config",
    "tts_core.errors",
    "tts_core.exports",
    "tts_core.models",
    "tts_core.printable",
}
LOADING = "mlx_port.commands.loading_flags"
FLAGS_OF_OPTIONS = {
    "mlx_port.commands.model_flags",
    "tts_core.options",
    "tts_core.text",
    "tts_core.text.pace",
    *(f"tts_core.{model}{part}" for model in NAMES for part in ("", ".options")),
    "tts_core.dia.sampling",
    "tts_core.nn",
    "tts_core.nn.sampling",
}
SECONDS = {"tts_core.command.seconds"}
EXTRAS = {"tts_core.extras"}
FORMATS = {"tts_core.audio", "tts_core.audio.formats", "tts_core.audio.formats.names", *EXTRAS}
OWN: dict[str, set[str]] = {
    "generate": {
        "mlx_port.commands.generate",
        "mlx_port.commands.generate_flags",
        LOADING,
        *FLAGS_OF_OPTIONS,
        *FORMATS,
    },
    "convert": {"converters", "converters.cli"},
    "verify": {"mlx_port.commands.verify", "mlx_port.commands.verify.command", *SECONDS, *EXTRAS},
    "estimate": {"mlx_port.commands.estimate", *SECONDS},
    "doctor": {"mlx_port.commands.doctor", *EXTRAS},
    "bench": {"mlx_port.commands.bench", "mlx_port.commands.bench.command", LOADING, *SECONDS},
    "serve": {
        "mlx_port.commands.serve",
        "mlx_port.commands.serve.command",
        LOADING,
        "mlx_port.commands.serve.settings",
        *SECONDS,
        *EXTRAS,
    },
    "batch": {
        "mlx_port.commands.batch",
        "mlx_port.commands.batch.command",
        "mlx_port.commands.batch.flags",
        LOADING,
        *FLAGS_OF_OPTIONS,
        *FORMATS,
    },
    "judge": {"mlx_port.commands.judge"},
    "voices": {"mlx_port.commands.voices"},
    "service": {"mlx_port.commands.service"},
    "cache": {"mlx_port.commands.cache"},
    "mcp": {"mlx_port.commands.mcp", *EXTRAS},
}
CONVERTER = {
    "converters",
    "converters.cli",
    "tts_core",
    "tts_core.command",
    "tts_core.command.runner",
    "tts_core.errors",
    "tts_core.printable",
}
# of Python's own library: a start with any of these takes noticeably longer
SLOW = {
    "asyncio",
    "email",
    "http",
    "json",
    "multiprocessing",
    "socket",
    "ssl",
    "subprocess",
    "unittest",
    "xml",
}
CODE = """
import sys
before = {*sys.modules}
code = 0
try:
    from PROGRAM import main
    main()
except SystemExit as end:
    code = end.code or 0
names = sorted({*sys.modules} - before)
import json
print(json.dumps([code, names]), file=sys.stderr)
"""


def imported(program: str, *words: str) -> set[str]:
    """Names of the modules that `--help` of a command imports."""
    command = [sys.executable, "-c", CODE.replace("PROGRAM", program), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    code, names = json.loads(done.stderr)
    assert code == 0
    assert done.stdout.startswith("Usage: ")
    return set(names)


def ours(names: set[str]) -> set[str]:
    """Those of our packages. Nothing else may be there but click and Python's own fast modules."""
    packages = {name.partition(".")[0]: name for name in sorted(names)}
    assert packages.keys() - sys.stdlib_module_names - {*OURS, "click"} == set()
    assert packages.keys() & SLOW == set()
    return {name for name in names if name.partition(".")[0] in OURS}


@pytest.mark.parametrize("words", [["--help"], ["-h"]], ids=" ".join)
def test_help_imports_no_command(words):
    assert ours(imported("mlx_port.commands.main", *words)) == COMMON


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_the_help_of_a_command_imports_its_flags_only(name):
    """No framework, no NumPy, no other command."""
    names = imported("mlx_port.commands.main", name, "--help")
    assert ours(names) == COMMON | OWN[name]
    if LOADING in OWN[name] and OWN[name] >= FORMATS:  # the longest helps have no time left for paths
        assert "pathlib" not in names


def test_the_help_of_the_converter_imports_no_model():
    assert ours(imported("converters.cli", "--help")) == CONVERTER


def test_help_names_every_command(capsys):
    assert cli.run(["--help"]) == 0
    out = capsys.readouterr().out
    for name in cli.COMMANDS:
        assert f"  {name}" in out


@pytest.mark.parametrize("model", NAMES)
def test_generate_has_a_flag_for_every_option(model):
    """With its help text, and each model's if they differ."""
    flags = {flag.name: flag for flag in generate.params if isinstance(flag, click.Option)}
    every = [field for field in fields(options_class(model)) if info(field).flags]
    assert every
    for field in every:
        known, flag = info(field), flags[f"option_{field.name}"]
        assert {*flag.opts, *flag.secondary_opts} >= set("/".join(known.flags).split("/"))
        shown = str(flag.help)
        assert known.help in shown
        assert shown == known.help or model in shown


def shown(capsys, *arguments):
    """The flags in a help, by section."""
    assert cli.run([*arguments]) == 0
    found: dict[str, list[str]] = {}
    for line in capsys.readouterr().out.splitlines():
        if line.endswith(":") and not line.startswith(" "):
            found[line[:-1]] = []
        elif line.startswith("  -"):
            found[[*found][-1]].append(line.split()[0].rstrip(","))
    return found


@pytest.mark.parametrize("command", ["generate", "batch"])
@pytest.mark.parametrize("model", NAMES)
def test_the_help_of_a_model_lists_its_options_only(capsys, model, command):
    found = shown(capsys, command, "--help", "--model", model)
    own = [
        info(field).flags[0].partition("/")[0] for field in fields(options_class(model)) if info(field).flags
    ]
    assert {*found[f"Options of {model}"]} == {*own}
    assert "--model" in found["Options"]
    assert [*found] == ["Options", f"Options of {model}"]


def test_the_help_of_a_converted_folder_is_its_models(capsys, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "mars5"}')
    assert "Options of mars5" in shown(capsys, "generate", "--model", str(tmp_path), "--help")
    assert "Options of dia2" in shown(capsys, "generate", "--model=nari-labs/Dia2-1B", "--help")
    assert cli.run(["generate", "--model", str(tmp_path / "none"), "--help"]) == 3


def test_the_help_without_a_model_lists_common_options_and_says_where_the_others_are(capsys):
    assert cli.run(["generate", "--help"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    for line in ("Every model has further options", "mlx-port generate --model MODEL --help lists them"):
        assert line in words
    common = set.intersection(
        *({field.name for field in fields(options_class(model)) if info(field).flags} for model in NAMES)
    )
    assert len(shown(capsys, "generate", "--help")["Options of every model"]) == len(common)
    assert "--timesteps" not in words


def test_a_help_that_depends_on_the_model_names_it():
    flags = {flag.name: str(flag.help) for flag in generate.params if isinstance(flag, click.Option)}
    assert flags["option_cfg_scale"].startswith("dia: Classifier-free guidance; 0 turns it off. dia2: ")
    assert flags["option_decoder"].endswith("(metavoice)")
    assert flags["option_seed"].endswith("random by default.")


@pytest.mark.parametrize("words", [["generate"], ["voices", "add"], []], ids=" ".join)
def test_help_is_a_command_too(capsys, words):
    assert cli.run([*words, "--help"]) == 0
    expected = capsys.readouterr().out
    assert cli.run(["help", *words]) == 0
    assert capsys.readouterr().out == expected


def test_help_of_an_unknown_command(capsys):
    assert cli.run(["help", "generat"]) == 2
    assert capsys.readouterr().err == "error: generat: no such command; did you mean generate?\n"


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["gen"], ["generate"]),
        (["b"], ["bench", "batch"]),
        (["voices", "a"], ["add"]),
        (["generate", "--dty"], ["--dtype"]),
        (["generate", "--dtype", "b"], ["bfloat16"]),
    ],
    ids=" ".join,
)
def test_completion(monkeypatch, capsys, words, found):
    """As bash asks for it: the words so far, and the place of the one that is completed."""
    monkeypatch.setenv("_MLX_PORT_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", " ".join(["mlx-port", *words]))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    assert cli.run([]) == 0
    out, err = capsys.readouterr()
    assert ([line.partition(",")[2] for line in out.splitlines()], err) == (found, "")
