"""Any flags, with any values, end in work done or in one line and an exit code; nothing is our fault."""

from __future__ import annotations

import io
import random
import sys
from functools import cache
from pathlib import Path
from unicodedata import category

import click
import numpy as np
import pytest
import soundfile

from mlx_port.commands import main as cli
from tests.contract.speakers import folder
from tests.fuzz import made
from tests.mlx_port.commands.fake import FakePipeline, install
from tts_core.models import NAMES

pytestmark = pytest.mark.rest

COMMANDS = ("generate", "estimate", "convert")
VALUES = [
    *[
        "",
        "0",
        "-1",
        "1",
        "2",
        "0.5",
        "nan",
        "inf",
        "-inf",
        "1e400",
        "9" * 40,
        "x",
        "true",
        "None",
        "-",
        "--text",
    ],
    *[
        "voice.wav",
        ".",
        "/dev/null",
        "a.wav",
        "a.flac",
        "a.srt",
        "nowhere",
        "nari-labs/Dia-1.6B-0626",
        "a" * 300,
    ],
    *["Hello.", "[S1] Hi.", "\x1b[2J", "\udcff", "é", "mlx", "torch", "float32", "affine", "4", "64", "0:1"],
]


@cache
def models() -> list[str]:
    """Published and converted folders."""
    published = [folder(name).parent / "published" for name in ("dia", "qwen3")]
    return [str(place) for place in (*published, *map(folder, NAMES), folder("dia") / "codec")]


def arguments(chance: random.Random) -> list[str]:
    command = chance.choice(COMMANDS)
    context = click.Context(cli.mlx_port)
    known = cli.mlx_port.get_command(context, command)
    assert known is not None
    flags = [flag for each in known.params for flag in (*each.opts, *each.secondary_opts) if flag[0] == "-"]
    flags = [flag for flag in flags if flag not in ("--play", "--debug")]
    made_up = [command]
    if command == "generate" and chance.random() < 0.7:
        made_up += ["--text", chance.choice(["Hello there.", "[S1] Hi."])]
    if chance.random() < 0.6:
        made_up += ["--hf-path" if command == "convert" else "--model", chance.choice(models())]
    for _ in range(chance.choice([0, 1, 1, 2, 4])):
        made_up.append(chance.choice(flags))
        if chance.random() < 0.75:
            made_up.append(chance.choice([*VALUES, *models()]))
    return [*made_up, "--dry-run", "--offline"] if command == "convert" else made_up


@made.cases(250, 20_000)
def test_flags(
    seeds: range, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    install(monkeypatch, FakePipeline())
    monkeypatch.chdir(tmp_path)
    soundfile.write("voice.wav", 0.2 * np.sin(np.arange(8 * 16000) / 20), 16000)
    codes = set()
    for seed in seeds:
        words = arguments(random.Random(seed))
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"[S1] Hello.")))
        code = cli.run(words)
        sound, said = capsysbinary.readouterr()
        out, err = "" if "-" in words else sound.decode(), said.decode()  # `--output -` writes sound
        where = f"seed {seed}: {words}: {code}, {err}"
        assert code in (0, 2, 3, 4, 5), where
        assert [line.startswith("error: ") for line in err.splitlines()].count(True) == (code != 0), where
        assert not [c for c in out + err if category(c) in made.HIDDEN and c != "\n"], where
        codes.add(code)
    assert {0, 2, 3} <= codes
