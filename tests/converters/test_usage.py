"""The wording of usage errors: the flag, what was wrong, what to do."""

import click
import pytest

from mlx_port.commands import main as cli
from tts_core.command.usage import nearest_flag, usage_line

FLAGS = (
    "--max-seconds",
    "--max-frames",
    "--ref-audio",
    "--ref-text",
    "--temperature",
    "--temp",
    "--json",
    "-q",
)


@pytest.mark.parametrize(
    ("given", "nearest"),
    [
        ("--max-tokens", "--max-seconds"),
        ("--max_frame", "--max-frames"),
        ("--ref-wav", "--ref-audio"),
        ("--temprature", "--temperature"),
        ("--jsn", "--json"),
        ("--json-output-file", "--json"),
        ("--voice", None),
        ("-x", None),
    ],
)
def test_the_nearest_flag(given, nearest):
    """By the first word, then by letters."""
    assert nearest_flag(given, FLAGS) == nearest


def test_a_message_of_our_own_is_kept():
    assert usage_line(click.UsageError("text: missing; give --text")) == "text: missing; give --text"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["generate", "--max_tokens", "5"], "--max-tokens: no such flag; did you mean --max-seconds?"),
        (["generate", "--seed", "x"], "--seed: 'x' cannot be used; give a whole number"),
        (["generate", "a", "b"], 'text: 2 words; put the whole text in quotes: mlx-port generate "..."'),
        (["generate", "--backend", "x"], "--backend: 'x' cannot be used; choose from mlx, torch"),
        (["estimate", "--batch", "0"], "--batch: 0 cannot be used; give a whole number >= 1 and <= 1000000"),
        (["estimate", "--seconds", "x"], "--seconds: 'x' cannot be used; give a number > 0 and <= 1000000"),
        (["estimate", "--seconds", "nan"], "--seconds: nan cannot be used; give a number > 0 and <= 1000000"),
        (["estimate", "a", "b"], "b: without a flag; see mlx-port estimate --help"),
        (["doctor", "--json=1"], "--json: takes no value; leave it out"),
        (["verify"], "SRC...: missing; see mlx-port verify --help"),
        (["verify", "a"], "SRC...: missing; see mlx-port verify --help"),
        (["convert", "--dtype"], "--dtype: its value is missing"),
        (["batch"], "SOURCE: missing; see mlx-port batch --help"),
        (["judge", "--whisper", "none"], "--whisper: none is not there; give another folder"),
        (
            ["judge", "--whisper", __file__],
            f"--whisper: {__file__} is a file; give another folder",
        ),
        (["genrate"], "genrate: no such command; did you mean generate?"),
        (["estimate", "dia", "--model", "dia"], "SRC: given twice; leave SRC or --model out"),
        (["speak"], "speak: no such command; choose one of " + ", ".join(cli.COMMANDS)),
    ],
)
def test_every_usage_error_is_in_one_form(capsys, arguments, line):
    assert cli.run(arguments) == 2
    assert capsys.readouterr().err == f"error: {line}\n"
